//! Judges what the text says of stored tensors.

use super::Judge;
use crate::checkpoint::header::{DIMENSIONS_MAX, Tensor};
use crate::checkpoint::json::Json;
use crate::checkpoint::structure::leaf::{Leaf, View};
use crate::checkpoint::structure::notation::{self, ITEMSIZE_MAX};
use crate::dtype::Dtype;
use crate::error::Result;

/// What went wrong, without the place.
type Judged<T> = std::result::Result<T, String>;

impl<'a> Judge<'a> {
    pub(super) fn leaf(&mut self, tag: &'a str, content: &'a Json) -> Result<Leaf> {
        let leaf = self.describe(tag, content).map_err(|why| self.wrong(why))?;
        if let Some(number) = leaf.object {
            let (known_tag, known) = self.objects.entry(number).or_insert((tag, leaf.clone()));
            // One object may be stored under several names.
            let same = Leaf { name: known.name.clone(), ..leaf.clone() };
            if *known_tag != tag || *known != same {
                return Err(self.wrong(format!("object {number} is described in two ways")));
            }
        }
        if let Some(number) = leaf.memory {
            let known = self.memories.entry(number).or_insert_with(|| leaf.clone());
            let fits = match (&known.view, &leaf.view) {
                (Some(_), Some(_)) => true,
                (None, None) => (&known.dtype, &known.shape) == (&leaf.dtype, &leaf.shape),
                _ => false,
            };
            if !fits {
                return Err(self.wrong(format!("memory {number} is described in two ways")));
            }
        }
        Ok(leaf)
    }

    fn describe(&self, tag: &str, content: &'a Json) -> Judged<Leaf> {
        let said = Said::read(content)?;
        let known = self.tensors.get(said.name).copied();
        let stored = known.ok_or_else(|| format!("the file has no tensor {:?}", said.name))?;
        match tag {
            "tensor" => said.tensor(stored),
            "array" => said.array(stored),
            _ => said.blob(stored),
        }
    }
}

/// A leaf as it was read. Which fields may stand together is judged by kind.
#[derive(Default)]
struct Said<'a> {
    name: &'a str,
    dtype: Option<&'a str>,
    numpy: Option<&'a str>,
    itemsize: Option<u64>,
    shape: Option<Vec<u64>>,
    stride: Option<Vec<u64>>,
    offset: Option<u64>,
    parameter: Option<bool>,
    grad: Option<bool>,
    device: Option<&'a str>,
    object: Option<u64>,
    memory: Option<u64>,
}

impl<'a> Said<'a> {
    fn read(json: &'a Json) -> Judged<Self> {
        let fields = match json {
            Json::Text(name) => return Ok(Self { name, ..Self::default() }),
            Json::Object(fields) => fields,
            other => return Err(format!("a tensor is {}, not a name or an object", other.what())),
        };
        let mut said = Self::default();
        let mut name = None;
        for (key, value) in fields {
            match key.as_str() {
                "name" => set(&mut name, key, value.text()),
                "dtype" => set(&mut said.dtype, key, value.text()),
                "numpy" => set(&mut said.numpy, key, value.text()),
                "itemsize" => set(&mut said.itemsize, key, value.number()),
                "shape" => set(&mut said.shape, key, value.numbers()),
                "stride" => set(&mut said.stride, key, value.numbers()),
                "offset" => set(&mut said.offset, key, value.number()),
                "parameter" => set(&mut said.parameter, key, value.boolean()),
                "grad" => set(&mut said.grad, key, value.boolean()),
                "device" => set(&mut said.device, key, value.text()),
                "object" => set(&mut said.object, key, value.number()),
                "memory" => set(&mut said.memory, key, value.number()),
                _ => Err(format!("a tensor has the unknown field {key:?}")),
            }?;
        }
        said.name = name.ok_or("a tensor without a name")?;
        Ok(said)
    }

    fn tensor(&self, stored: &Tensor) -> Judged<Leaf> {
        if self.numpy.is_some() {
            return Err("a tensor has a dtype of NumPy".into());
        }
        let (dtype, itemsize) = match (self.dtype, self.itemsize) {
            (None, None) => (stored.dtype.name(), stored.dtype.bytes()),
            (Some(dtype), Some(itemsize)) if notation::is_dtype(dtype) => (dtype, itemsize),
            _ => return Err("dtype and itemsize of a tensor make no sense together".into()),
        };
        check_itemsize(itemsize)?;
        let (shape, view) = match (&self.shape, &self.stride, self.offset) {
            (Some(shape), Some(stride), Some(offset)) => {
                let view = View { stride: stride.clone(), offset };
                if self.memory.is_some() {
                    check_place(&view, shape, itemsize, stored)?;
                    self.dtype.ok_or("a place in shared memory has no dtype")?;
                } else {
                    check_view(&view, shape, itemsize, stored)?;
                }
                (shape.clone(), Some(view))
            }
            (None, None, None) if self.dtype.is_some() => (shape_of_bytes(stored, itemsize)?, None),
            (None, None, None) => (stored.shape.clone(), None),
            _ => return Err("a view of a tensor lacks its shape, stride or offset".into()),
        };
        let device = self.device.unwrap_or("cpu");
        if !notation::is_device(device) {
            return Err(format!("{device:?} is no device"));
        }
        let parameter = self.parameter.unwrap_or(false);
        Ok(Leaf {
            view,
            memory: self.memory,
            parameter,
            grad: self.grad.unwrap_or(parameter),
            device: device.to_owned(),
            ..self.whole(dtype, itemsize, shape)
        })
    }

    fn array(&self, stored: &Tensor) -> Judged<Leaf> {
        let view = self.shape.is_some() || self.stride.is_some() || self.offset.is_some();
        let torch = self.dtype.is_some() || self.device.is_some() || self.memory.is_some();
        if view || torch || self.parameter.is_some() || self.grad.is_some() {
            return Err("an array has fields that only tensors have".into());
        }
        let dtype = self.numpy.ok_or("an array without its dtype")?;
        let itemsize = notation::numpy_itemsize(dtype);
        let itemsize = itemsize.ok_or_else(|| format!("{dtype:?} is no dtype of NumPy"))?;
        check_itemsize(itemsize)?;
        let shape = match self.itemsize {
            Some(given) if given != itemsize => {
                return Err(format!("elements of {dtype:?} have no {given} bytes"));
            }
            Some(_) => shape_of_bytes(stored, itemsize)?,
            None if stored.dtype.bytes() != itemsize => {
                let name = stored.dtype.name();
                return Err(format!("elements of {dtype:?} are not stored as {name}"));
            }
            None => stored.shape.clone(),
        };
        Ok(self.whole(dtype, itemsize, shape))
    }

    fn blob(&self, stored: &Tensor) -> Judged<Leaf> {
        let plain =
            Leaf { name: self.name.to_owned(), ..self.whole("U8", 1, stored.shape.clone()) };
        let said = self.tensor(stored)?;
        if said != plain || stored.dtype != Dtype::U8 || stored.shape.len() != 1 {
            return Err("bytes are not stored as one row of U8".into());
        }
        Ok(plain)
    }

    /// A leaf that is all of its stored tensor.
    fn whole(&self, dtype: &str, itemsize: u64, shape: Vec<u64>) -> Leaf {
        Leaf {
            name: self.name.to_owned(),
            dtype: dtype.to_owned(),
            itemsize,
            shape,
            view: None,
            memory: None,
            parameter: false,
            grad: false,
            device: "cpu".to_owned(),
            object: self.object,
        }
    }
}

fn check_itemsize(itemsize: u64) -> Judged<()> {
    if (1..=ITEMSIZE_MAX).contains(&itemsize) {
        return Ok(());
    }
    Err(format!("an element has {itemsize} bytes instead of 1 to {ITEMSIZE_MAX}"))
}

/// The shape of elements that are stored as bytes, those of an element in the last dimension.
fn shape_of_bytes(stored: &Tensor, itemsize: u64) -> Judged<Vec<u64>> {
    match stored.shape.split_last() {
        Some((last, shape)) if stored.dtype == Dtype::U8 && *last == itemsize => Ok(shape.to_vec()),
        _ => Err(format!("elements of {itemsize} bytes are not stored as U8 in rows of as many")),
    }
}

fn check_view(view: &View, shape: &[u64], itemsize: u64, stored: &Tensor) -> Judged<()> {
    let end = check_end(view, shape, itemsize)?;
    let bytes = stored.range.end - stored.range.start;
    if end > bytes {
        return Err(format!("a view ends at byte {end}, {bytes} are stored"));
    }
    Ok(())
}

/// Of a leaf that is stored in order, and has its place in memory that it shares with others.
fn check_place(view: &View, shape: &[u64], itemsize: u64, stored: &Tensor) -> Judged<()> {
    let end = check_end(view, shape, itemsize)?;
    let is_stored_so = stored.dtype.bytes() == itemsize && stored.shape == shape;
    if !is_stored_so && !shape_of_bytes(stored, itemsize).is_ok_and(|stored| stored == shape) {
        return Err("a tensor is not stored as its place in shared memory says".into());
    }
    if shape.contains(&0) || i64::try_from(end).is_err() {
        return Err("a tensor has no place in shared memory".into());
    }
    Ok(())
}

/// The byte behind the last element.
fn check_end(view: &View, shape: &[u64], itemsize: u64) -> Judged<u64> {
    if shape.len() != view.stride.len() || shape.len() > DIMENSIONS_MAX {
        return Err("shape and stride of a view differ in length, or are too long".into());
    }
    if !view.offset.is_multiple_of(itemsize) {
        let offset = view.offset;
        return Err(format!("a view begins at byte {offset}, inside an element of {itemsize}"));
    }
    let end = view.end(shape, itemsize);
    end.ok_or_else(|| "a view has more bytes than can be counted".into())
}

fn set<T>(field: &mut Option<T>, key: &str, value: Option<T>) -> Judged<()> {
    let value = value.ok_or_else(|| format!("the field {key:?} of a tensor makes no sense"))?;
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("the key {key:?} stands twice")),
    }
}
