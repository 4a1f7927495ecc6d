//! How any command starts and ends.

use std::process::Stdio;

use crate::{run, tensorferry};

#[test]
fn the_version_is_printed_with_the_name() {
    let ended = run(&["--version"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout, format!("tensorferry {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_names_the_subcommands() {
    let ended = run(&["--help"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("Usage: tensorferry <COMMAND>"), "{}", ended.stdout);
    for line in
        ["doctor    Show what this machine offers", "inspect   List what is in a checkpoint"]
    {
        assert!(ended.stdout.contains(line), "{}", ended.stdout);
    }
}

#[test]
fn no_arguments_at_all_show_the_help_as_a_mistake() {
    let ended = run(&[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("Usage: tensorferry <COMMAND>"), "{}", ended.stderr);
}

#[test]
fn an_unknown_subcommand_is_a_usage_error_that_names_it() {
    let ended = run(&["docter"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    let expected = "error: unrecognized subcommand 'docter'\n\n  tip: a similar subcommand exists: \
                    'doctor'\n\nUsage: tensorferry <COMMAND>\n";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
}

#[test]
fn an_unknown_option_is_a_usage_error_that_names_it() {
    let ended = run(&["doctor", "--jsn"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.starts_with("error: unexpected argument '--jsn' found\n"), "{ended:?}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    for args in [&["doctor"][..], &["--help"], &["doctor", "--json"]] {
        let mut child =
            tensorferry(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = tensorferry(&["doctor"]).stdout(full).output().unwrap();
    let expected = "error: can't write to standard output: No space left on device (os error 28)\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!(output.status.code(), Some(1));
}
