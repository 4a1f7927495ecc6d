"""What `make quickstart` shows, a part for each thing that users come with."""
