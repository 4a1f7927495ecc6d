"""Capturing what autograd saves; the bytes are the core's."""
