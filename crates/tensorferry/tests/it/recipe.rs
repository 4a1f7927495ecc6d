//! Recipes on real files.

mod array;
mod audio;
#[cfg(feature = "images")]
mod damage;
#[cfg(feature = "images")]
mod image;
mod small;

use tensorferry::data::chance::Chance;
use tensorferry::data::recipe::{Chain, Recipe, Scratch, for_suffix};
use tensorferry::data::sample::{Alone, Field, Layout, Raw};
use tensorferry::{Error, Result};

use super::engine::file_of;

/// The recipe for an ending and the text of a chain.
fn recipe(suffix: &str, chain: &str) -> Box<dyn Recipe> {
    try_recipe(suffix, chain).unwrap()
}

fn try_recipe(suffix: &str, chain: &str) -> Result<Box<dyn Recipe>> {
    for_suffix(suffix, &Chain::from_json(chain)?)
}

/// The error of a chain that can't be.
fn refused(suffix: &str, chain: &str) -> Error {
    match try_recipe(suffix, chain) {
        Ok(_) => panic!("{chain} was taken"),
        Err(error) => error,
    }
}

fn prepare(recipe: &dyn Recipe, field: Field<'_>, chance: Chance) -> Result<Alone> {
    let mut place = Alone::default();
    recipe.prepare(field, chance, &mut Scratch::default(), &mut place)?;
    Ok(place)
}

/// The only array that a recipe gives for these bytes.
fn array(recipe: &dyn Recipe, bytes: &[u8], chance: Chance) -> Result<(Layout, Vec<u8>)> {
    let mut place = prepare(recipe, Field::Memory(bytes), chance)?;
    assert_eq!(place.arrays.len(), 1);
    let (member, layout, memory) = place.arrays.remove(0);
    assert_eq!(member, "");
    Ok((layout, memory))
}

/// The same bytes in a file.
fn stored(bytes: &[u8]) -> Raw {
    let file = file_of(&[b"before", bytes, b"behind"].concat());
    Raw::stored(file, 6, bytes.len() as u64)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

fn chance(index: u64) -> Chance {
    Chance::of(1, 2, index)
}
