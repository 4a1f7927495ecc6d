//! Judges what the text says of tensors that the object has and the file has not.
//!
//! Of several ranks that have the same tensor, one stores it. The objects of the others refer to it
//! all the same, and say here what it is like, so that they can be judged without its file: an
//! array of name, dtype and shape for each.

use std::collections::HashSet;

use crate::checkpoint::header::{DIMENSIONS_MAX, Header, Tensor, bytes_of};
use crate::checkpoint::json::Json;
use crate::dtype::Dtype;

/// The tensors, or what is wrong with what is said of them.
pub(super) fn tensors(json: Option<&Json>, header: &Header) -> Result<Vec<Tensor>, String> {
    let Some(json) = json else { return Ok(Vec::new()) };
    let Json::Array(items) = json else {
        return Err(format!("\"elsewhere\" is {}, not an array", json.what()));
    };
    let mut known: HashSet<_> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    items.iter().map(|item| tensor(item, &mut known)).collect()
}

fn tensor<'a>(json: &'a Json, known: &mut HashSet<&'a str>) -> Result<Tensor, String> {
    let wrong = || "\"elsewhere\" holds more than arrays of name, dtype and shape".to_owned();
    let Json::Array(said) = json else { return Err(wrong()) };
    let [name, dtype, shape] = said.as_slice() else { return Err(wrong()) };
    let (name, dtype, shape) =
        (name.text().ok_or_else(wrong)?, dtype.text().ok_or_else(wrong)?, shape.numbers());
    let shape = shape.ok_or_else(wrong)?;
    if !known.insert(name) {
        return Err(format!("the tensor {name:?} is elsewhere and here, or elsewhere twice"));
    }
    if shape.len() > DIMENSIONS_MAX {
        return Err(format!("the tensor {name:?} has more than {DIMENSIONS_MAX} dimensions"));
    }
    let dtype = Dtype::named(dtype).map_err(|error| error.to_string())?;
    let bytes = bytes_of(dtype, &shape)
        .ok_or_else(|| format!("the tensor {name:?} has more bytes than can be counted"))?;
    Ok(Tensor { name: name.to_owned(), dtype, shape, range: 0..bytes })
}
