//! A listing for people.

use std::fmt::Write;

use tensorferry::Size;

use super::listing::{Checksums, Listing, Row};
use crate::output::printable;

/// Characters of a name or a text; longer ones are cut.
const SHOWN_MAX: usize = 72;

/// The listing as lines, of at most `limit` tensors and as many parts of the object.
pub(super) fn show(listing: &Listing, limit: usize) -> String {
    let tensors = counted(listing.tensor_count, "tensor");
    let (data, file) = (Size(listing.tensor_bytes), Size(listing.bytes));
    let name = printable(&listing.file);
    let mut out = format!("{name}: {tensors}, {data}, in a file of {file}\n");
    show_tensors(&mut out, listing, limit);
    if let Some(object) = &listing.object {
        let _ = write!(out, "\nobject, saved by the tool {}:\n", shown(&object.tool));
        let lines = object.tree.iter().take(limit);
        lines.for_each(|line| out.extend(["  ", line, "\n"]));
        show_rest(&mut out, object.tree.len(), limit, "line");
    }
    if !listing.metadata.is_empty() {
        out.push_str("\nmetadata:\n");
        for (name, text) in &listing.metadata {
            let _ = writeln!(out, "  {}: {}", shown(name), shown(text));
        }
    }
    let checksums = match listing.checksums {
        Checksums::Verified => "verified",
        Checksums::Wrong => "wrong",
        Checksums::Unverified => "not verified",
        Checksums::None => "no checksums",
    };
    let _ = write!(out, "\nchecksums: {checksums}\n");
    out
}

fn show_tensors(out: &mut String, listing: &Listing, limit: usize) {
    let rows = listing.tensors.iter().take(limit).map(cells);
    let head = ["name", "dtype", "shape", "bytes", "offset"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [0, 1, 2, 3, 4].map(|column| width(column).unwrap_or(0));
    if rows.len() > 1 {
        out.push('\n');
        for [name, dtype, shape, bytes, offset] in &rows {
            let [names, dtypes, shapes, sizes, offsets] = widths;
            let _ = write!(out, "  {name:names$}  {dtype:dtypes$}  {shape:shapes$}");
            let _ = writeln!(out, "  {bytes:>sizes$}  {offset:>offsets$}");
        }
    }
    show_rest(out, listing.tensor_count, limit, "tensor");
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
