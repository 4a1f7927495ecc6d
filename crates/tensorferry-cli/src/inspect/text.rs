//! A listing for people.

use std::fmt::Write;

use tensorferry::Size;

use super::listing::{Checksums, Listing, Object, Row};
use super::several::{Placed, Save, Several};
use crate::output::printable;

/// Characters of a name or a text; longer ones are cut.
const SHOWN_MAX: usize = 72;

/// The listing as lines, of at most `limit` tensors and as many parts of the object.
pub(super) fn show(listing: &Listing, limit: usize) -> String {
    let tensors = counted(listing.tensor_count, "tensor");
    let (data, file) = (Size(listing.tensor_bytes), Size(listing.bytes));
    let name = printable(&listing.file);
    let mut out = format!("{name}: {tensors}, {data}, in a file of {file}\n");
    let rows = listing.tensors.iter().take(limit).map(cells).collect();
    let head = ["name", "dtype", "shape", "bytes", "offset"];
    show_table(&mut out, head, rows, &["bytes", "offset"]);
    show_rest(&mut out, listing.tensor_count, limit, "tensor");
    show_object(&mut out, listing.object.as_ref(), limit);
    if !listing.metadata.is_empty() {
        out.push_str("\nmetadata:\n");
        for (name, text) in &listing.metadata {
            let _ = writeln!(out, "  {}: {}", shown(name), shown(text));
        }
    }
    let _ = write!(out, "\nchecksums: {}\n", words(listing.checksums));
    out
}

/// The same for a checkpoint in several files.
pub(super) fn show_several(listing: &Several, limit: usize) -> String {
    let tensors = counted(listing.tensor_count, "tensor");
    let (data, bytes) = (Size(listing.tensor_bytes), Size(listing.bytes));
    let (name, files) = (printable(&listing.file), counted(listing.files.len(), "file"));
    let mut out = format!("{name}: {tensors}, {data}, in {files} of {bytes}");
    if let Some(Save { token, ranks }) = &listing.save {
        let _ = write!(out, ", saved by {} as {token}", counted(*ranks, "rank"));
    }
    out.push('\n');
    let rows = listing.tensors.iter().take(limit).map(|placed| {
        let Placed { name, dtype, shape, bytes, place } = placed;
        let shape = shown(&format!("{shape:?}"));
        [shown(name), shown(dtype), shape, Size(*bytes).to_string(), shown(place)]
    });
    let head = ["name", "dtype", "shape", "bytes", "place"];
    show_table(&mut out, head, rows.collect(), &["bytes"]);
    show_rest(&mut out, listing.tensor_count, limit, "tensor");
    show_object(&mut out, listing.object.as_ref(), limit);
    let rows = listing.files.iter().take(limit).map(|part| {
        let error = part.error.as_ref().map_or("", |error| error.kind);
        [
            shown(&part.file),
            Size(part.bytes).to_string(),
            words(part.checksums).into(),
            error.into(),
        ]
    });
    show_table(&mut out, ["file", "bytes", "checksums", ""], rows.collect(), &["bytes"]);
    show_rest(&mut out, listing.files.len(), limit, "file");
    out
}

fn words(checksums: Checksums) -> &'static str {
    match checksums {
        Checksums::Verified => "verified",
        Checksums::Wrong => "wrong",
        Checksums::Unverified => "not verified",
        Checksums::OfHeader => "verified for the header, none for the tensors",
        Checksums::None => "no checksums",
    }
}

fn show_object(out: &mut String, object: Option<&Object>, limit: usize) {
    let Some(object) = object else { return };
    let _ = write!(out, "\nobject, saved by the tool {}:\n", shown(&object.tool));
    let lines = object.tree.iter().take(limit);
    lines.for_each(|line| out.extend(["  ", line, "\n"]));
    show_rest(out, object.tree.len(), limit, "line");
}

/// Rows under a head, in columns; those that are named stand at the right of theirs. Nothing without
/// rows.
fn show_table<const N: usize>(
    out: &mut String,
    head: [&str; N],
    rows: Vec<[String; N]>,
    right: &[&str],
) {
    if rows.is_empty() {
        return;
    }
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    out.push('\n');
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if right.contains(&head[column]) {
                write!(line, "  {cell:>width$}")
            } else {
                write!(line, "  {cell:width$}")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn cells(row: &Row) -> [String; 5] {
    let shape = shown(&format!("{:?}", row.shape));
    let (bytes, offset) = (Size(row.bytes).to_string(), row.offset.to_string());
    [shown(&row.name), row.dtype.to_owned(), shape, bytes, offset]
}

fn show_rest(out: &mut String, total: usize, limit: usize, what: &str) {
    if let Some(rest @ 1..) = total.checked_sub(limit) {
        let _ = writeln!(out, "  ... and {}", counted(rest, &format!("more {what}")));
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A text from the file: harmless, and not too long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => printable(text),
        Some((end, _)) => printable(&text[..end]) + "...",
    }
}
