//! Just enough of Rust's grammar to know which words are code and which paths a file names.

/// A word or a sign of the code, and its line counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A path as written, for example `crate::io::File`, from a `use` or from the middle of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub segments: Vec<String>,
    /// The name after `as`.
    pub alias: Option<String>,
    pub line: usize,
    /// How many `mod name { ... }` of this file surround it: they shift what `super` means.
    pub depth: usize,
}

/// The words and signs of `source` without its comments and literals.
pub fn tokens(source: &str) -> Vec<Token> {
    let code: Vec<char> = strip(source).chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < code.len() {
        let start = at;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if is_word(code[at]) {
            at = (at..code.len()).find(|&end| !is_word(code[end])).unwrap_or(code.len());
        } else if code[at..].starts_with(&[':', ':']) {
            at += 2;
        } else {
            at += 1;
        }
        let text: String = code[start..at].iter().collect();
        if text == "\n" {
            line += 1;
        } else if !text.trim().is_empty() {
            tokens.push(Token { text, line });
        }
    }
    tokens
}

/// `source` with every character of comments and literals replaced by a space; lines stay.
pub fn strip(source: &str) -> String {
    let code: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < code.len() {
        let end = at + literal_or_comment(&code, at);
        if end == at {
            out.push(code[at]);
            at += 1;
        }
        out.extend(code[at.min(end)..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = at.max(end);
    }
    out
}

/// How many characters from `at` on are one comment or literal; 0 if none begins there.
fn literal_or_comment(code: &[char], at: usize) -> usize {
    let rest = &code[at..];
    let inside_word = at > 0 && (code[at - 1].is_alphanumeric() || code[at - 1] == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest),
        ['\'', ..] => character(rest),
        ['r', '"' | '#', ..] if !inside_word => raw(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !inside_word => raw(rest, 2),
        _ => 0,
    }
}

/// Block comments nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `'x'` and `'\n'` are characters; `'a` is a lifetime and stays.
fn character(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, tail @ ..] => {
            tail.iter().position(|c| *c == '\'').map_or(rest.len(), |close| close + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// `r"..."` and `r##"..."##`; `prefix` letters stand before. `r#name` is a word, not a literal.
fn raw(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    length.map_or(rest.len(), |length| open + 1 + length + close.len())
}

/// Every path in the code, with the groups of `use a::{b, c::d}` written out.
pub fn paths(tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut modules = Vec::new();
    let (mut at, mut braces) = (0, 0usize);
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "mod" if text(tokens, at + 2) == "{" => modules.push(braces),
            "{" => braces += 1,
            "}" => {
                braces = braces.saturating_sub(1);
                modules.pop_if(|opened| *opened == braces);
            }
            _ => {}
        }
        at = if is_name(&tokens[at].text) {
            read(tokens, at, &[], modules.len(), &mut found)
        } else {
            at + 1
        };
    }
    found
}

/// Reads the path that starts at `at` after `before`; gives the place behind it.
fn read(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    depth: usize,
    found: &mut Vec<Named>,
) -> usize {
    let line = tokens[at].line;
    let mut segments = before.to_vec();
    loop {
        segments.push(text(tokens, at).to_owned());
        at += 1;
        match (text(tokens, at), text(tokens, at + 1)) {
            ("::", "{") => return group(tokens, at + 2, &segments, depth, found),
            ("::", next) if is_name(next) || next == "*" => at += 1,
            _ => break,
        }
    }
    let alias = (text(tokens, at) == "as").then(|| text(tokens, at + 1).to_owned());
    found.push(Named { segments, alias, line, depth });
    at
}

/// Reads `b, c::d}`; gives the place behind the brace.
fn group(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    depth: usize,
    found: &mut Vec<Named>,
) -> usize {
    while at < tokens.len() && tokens[at].text != "}" {
        let word = &tokens[at].text;
        let after_as = at > 0 && tokens[at - 1].text == "as";
        at = if !after_as && word != "as" && (is_name(word) || word == "*") {
            read(tokens, at, before, depth, found)
        } else {
            at + 1
        };
    }
    at + 1
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    fn named(source: &str) -> Vec<String> {
        paths(&tokens(source)).into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        for source in [
            "a // unsafe\nb",
            "a /* unsafe /* unsafe */ unsafe */ b",
            "a \"unsafe\" b",
            "a \"x\\\"unsafe\" b",
            "a \"two\nunsafe lines\" b",
            "a r\"unsafe\\\" b",
            "a r##\"unsafe\"# unsafe\"## b",
            "a b\"unsafe\" b",
            "a br#\"unsafe\"# b",
            "a cr\"unsafe\" b",
            "a '\"' b // unsafe",
            "a '\\'' b // unsafe",
            "a '\\u{22}' b // unsafe",
            "a /* unsafe",
            "a \"unsafe",
        ] {
            let words = words(source);
            assert!(words.contains(&"a".to_owned()), "{source}");
            assert!(!words.contains(&"unsafe".to_owned()), "{source}: {words:?}");
        }
    }

    #[test]
    fn code_beside_comments_and_literals_stays() {
        for source in [
            "/* x */ unsafe {}",
            "\"x\" unsafe",
            "fn f<'a>(x: &'a str) { unsafe {} }",
            "'\\\\' unsafe '\\\\'",
            "r#type unsafe",
            "var\"x\" unsafe \"y\"",
            "b'\"' unsafe b'\"'",
            "// x\nunsafe",
            "'outer: loop { unsafe { break 'outer } }",
        ] {
            assert!(words(source).contains(&"unsafe".to_owned()), "{source}");
        }
    }

    #[test]
    fn lines_are_counted_through_comments_and_literals() {
        let tokens = tokens("/* 1\n2 */ \"a\n3\" // 3\nx");
        assert_eq!(tokens, [Token { text: "x".to_owned(), line: 4 }]);
    }

    #[test]
    fn groups_are_written_out() {
        assert_eq!(
            named("use std::{fs, time::{Duration, Instant as Now}, io::*};"),
            ["use", "std::fs", "std::time::Duration", "std::time::Instant", "std::io::*"]
        );
        let renamed = paths(&tokens("use crate::{io as disk};"));
        assert_eq!(renamed[1].alias.as_deref(), Some("disk"));
    }

    #[test]
    fn paths_are_found_in_the_middle_of_code() {
        let found = named("let x = crate::io::File::<u8>::open(std::fs::read);");
        assert!(found.contains(&"crate::io::File".to_owned()), "{found:?}");
        assert!(found.contains(&"std::fs::read".to_owned()), "{found:?}");
    }

    #[test]
    fn modules_inside_a_file_are_counted_around_a_path() {
        let found =
            paths(&tokens("super::a; mod t { fn f() { super::b } mod u { super::c } } super::d"));
        let depths: Vec<_> = found
            .iter()
            .filter(|path| path.segments[0] == "super")
            .map(|path| (path.segments[1].as_str(), path.depth))
            .collect();
        assert_eq!(depths, [("a", 0), ("b", 1), ("c", 2), ("d", 0)]);
    }
}
