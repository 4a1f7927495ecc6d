//! The object as an indented tree for people.
//!
//! A line for each tensor, value and container; a container of plain values is one line. Texts come
//! from outside: control characters are escaped and long ones are cut, so that nothing in a file
//! can take over a terminal.

use std::fmt;

use super::leaf::Leaf;
use super::node::{Entries, Node};

/// Characters of a value or a key.
const SHOWN_MAX: usize = 60;

/// An object, to be shown.
#[derive(Debug)]
pub struct Tree<'a> {
    object: &'a Node,
    lines_max: usize,
}

impl<'a> Tree<'a> {
    pub(super) fn new(object: &'a Node, lines_max: usize) -> Self {
        Self { object, lines_max }
    }
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = lines(self.object);
        let fits = total <= self.lines_max;
        // The last line says how many more there are.
        let room = if fits { total } else { self.lines_max.saturating_sub(1) };
        Writer { f, room }.node(0, "", self.object)?;
        if fits { Ok(()) } else { write!(f, "... and {} more lines", total - room) }
    }
}

struct Writer<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    /// Lines that may still be written.
    room: usize,
}

impl Writer<'_, '_> {
    fn node(&mut self, level: usize, label: &str, node: &Node) -> fmt::Result {
        if self.room == 0 {
            return Ok(());
        }
        self.room -= 1;
        writeln!(self.f, "{:indent$}{label}{}", "", shown(node), indent = 2 * level)?;
        let level = level + 1;
        match node {
            Node::List(items) | Node::Tuple(items) if !are_plain(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.node(level, &format!("[{index}]: "), item))
            }
            // Metadata is for modules, not for people.
            Node::Dict(entries) | Node::Counter(entries) | Node::OrderedDict(entries, _) => {
                self.entries(level, entries)
            }
            _ => Ok(()),
        }
    }

    fn entries(&mut self, level: usize, entries: &Entries) -> fmt::Result {
        entries.iter().try_for_each(|(key, node)| {
            let label = match key {
                Node::Str(text) => escaped(text),
                other => shown(other),
            };
            self.node(level, &format!("{label}: "), node)
        })
    }
}

/// How many lines a node takes.
fn lines(node: &Node) -> usize {
    1 + match node {
        Node::List(items) | Node::Tuple(items) if !are_plain(items) => {
            items.iter().map(lines).sum()
        }
        Node::Dict(entries) | Node::Counter(entries) | Node::OrderedDict(entries, _) => {
            entries.iter().map(|(_, node)| lines(node)).sum()
        }
        _ => 0,
    }
}

/// Whether a line says all of them.
fn are_plain(items: &[Node]) -> bool {
    !items.iter().any(|item| {
        let container = matches!(item, Node::List(_) | Node::Tuple(_));
        let dict = matches!(item, Node::Dict(_) | Node::Counter(_) | Node::OrderedDict(..));
        let leaf = matches!(item, Node::Tensor(_) | Node::Array(_));
        container || dict || leaf
    })
}

/// A node in one line, without what stands inside of it unless that is plain.
pub(super) fn shown(node: &Node) -> String {
    match node {
        Node::None => "None".into(),
        Node::Bool(true) => "True".into(),
        Node::Bool(false) => "False".into(),
        Node::Int(value) => value.to_string(),
        Node::LongInt(digits) => cut(digits),
        Node::Float(value) => format!("{value:?}"),
        Node::Complex(real, imaginary) => format!("complex({real:?}, {imaginary:?})"),
        Node::Str(text) => format!("\"{}\"", escaped(text)),
        Node::Bytes(len) => format!("bytes, {len}"),
        Node::ByteArray(len) => format!("bytearray, {len}"),
        Node::List(items) => listed("list", items),
        Node::Tuple(items) => listed("tuple", items),
        Node::Set(items) => listed("set", items),
        Node::FrozenSet(items) => listed("frozenset", items),
        Node::Dict(entries) => counted("dict", entries.len()),
        Node::OrderedDict(entries, _) => counted("OrderedDict", entries.len()),
        Node::Counter(entries) => counted("Counter", entries.len()),
        Node::Size(sizes) => cut(&format!("torch.Size({sizes:?})")),
        Node::Dtype(name) => format!("torch.{name}"),
        Node::Device(name) => format!("device {name}"),
        Node::Scalar(dtype) => format!("NumPy scalar {dtype}"),
        Node::Tensor(leaf) => tensor(if leaf.parameter { "parameter" } else { "tensor" }, leaf),
        Node::Array(leaf) => tensor("array", leaf),
        Node::Blob(leaf) => format!("bytes, {}", leaf.shape.iter().sum::<u64>()),
        Node::ByteArrayBlob(leaf) => format!("bytearray, {}", leaf.shape.iter().sum::<u64>()),
    }
}

fn tensor(what: &str, leaf: &Leaf) -> String {
    let Leaf { name, dtype, shape, device, view, memory, .. } = leaf;
    let place = if device == "cpu" { String::new() } else { format!(" on {device}") };
    let tie = match (memory, view) {
        (Some(memory), _) => format!(", in memory {memory}"),
        (None, Some(_)) => format!(", a view of {}", escaped(name)),
        (None, None) => String::new(),
    };
    format!("{what} {dtype} {shape:?}{place}{tie}")
}

fn listed(kind: &str, items: &[Node]) -> String {
    let count = counted(kind, items.len());
    if items.is_empty() || !are_plain(items) {
        return count;
    }
    // More than these can't be shown, whatever they are.
    let items: Vec<_> = items.iter().take(SHOWN_MAX).map(shown).collect();
    format!("{count}: {}", cut(&items.join(", ")))
}

fn counted(kind: &str, len: usize) -> String {
    format!("{kind} of {len}")
}

/// A text without quotes, cut, with control characters escaped.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        other => other.escape_debug().to_string(),
    };
    cut(&text.chars().take(SHOWN_MAX + 1).map(escape).collect::<String>())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
