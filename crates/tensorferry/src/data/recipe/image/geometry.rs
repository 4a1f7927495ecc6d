//! Where the pixels of a result come from: a pure function of the chain, the picture's size and the
//! sample's chance.
//!
//! # How changes are composed
//!
//! A [`View`] says it all for the usual chains: only `region` of the picture exists, `window` in it
//! becomes `target`. A crop before any resizing narrows the region. A crop after one narrows the
//! window: the pixels around it still take part, as they would had all been resized and then cut. So a
//! picture is resized once, and only [`View::needed`] of it has to be decoded.
//!
//! Flips go last: each later change is mirrored instead. What can't be said by one view (a second
//! resizing, padding) starts another one, carried out after the first.
//!
//! # Bounds
//!
//! No result on the way has more pixels than a picture may have.

use super::change::{Change, Padding, Size};
use crate::data::chance::Chance;
use crate::data::recipe::step::Interpolation;
use crate::error::{Error, Result};

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Area {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

/// A rectangle between pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Window {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// A part of a picture, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// All that exists: nothing outside is seen.
    pub region: Area,
    /// What becomes the result, in the picture's coordinates.
    pub window: Window,
    /// The size of the result.
    pub target: Size,
    /// How it is resized; none if it is the region as it is.
    pub filter: Option<Interpolation>,
}

/// Something that is carried out on pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Act {
    /// Cut and resize.
    View(View),
    /// Put pixels of this value around.
    Pad(Padding, u8),
}

/// All that happens to a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is taken from the stored picture.
    pub first: View,
    /// What is done with that, one after the other.
    pub rest: Vec<Act>,
    /// Whether left and right are exchanged in the end.
    pub flip_x: bool,
    /// Whether top and bottom are.
    pub flip_y: bool,
    /// What comes out.
    pub size: Size,
}

/// The plan of `changes` for a picture of this size.
pub fn plan(changes: &[Change], size: Size, pixels_max: u64, chance: &mut Chance) -> Result<Plan> {
    let mut builder = Builder::of(size, pixels_max);
    for change in changes {
        builder.apply(*change, chance)?;
    }
    Ok(builder.plan())
}

impl Area {
    /// All of a picture.
    pub const fn whole(size: Size) -> Self {
        Self { left: 0, top: 0, width: size.width, height: size.height }
    }

    /// Its size.
    pub const fn size(self) -> Size {
        Size::new(self.width, self.height)
    }

    fn window(self) -> Window {
        Window {
            left: self.left.into(),
            top: self.top.into(),
            width: self.width.into(),
            height: self.height.into(),
        }
    }
}

impl View {
    /// All of a picture, as it is.
    pub fn whole(size: Size) -> Self {
        let region = Area::whole(size);
        Self { region, window: region.window(), target: size, filter: None }
    }

    /// How many pixels of the picture become one of the result, in each direction.
    pub fn factors(&self) -> (f64, f64) {
        let across = self.window.width / f64::from(self.target.width);
        (across, self.window.height / f64::from(self.target.height))
    }

    /// The pixels that take part.
    pub fn needed(&self) -> Area {
        let Some(filter) = self.filter else { return self.region };
        let (across, down) = self.factors();
        let reach = |factor: f64| support(filter) * factor.max(1.0) + 1.0;
        let (left, width) = span(
            (self.region.left, self.region.width),
            (self.window.left, self.window.width),
            reach(across),
        );
        let (top, height) = span(
            (self.region.top, self.region.height),
            (self.window.top, self.window.height),
            reach(down),
        );
        Area { left, top, width, height }
    }

    /// The same view of a picture whose sides were divided by `denominator`.
    #[must_use]
    pub fn shrunk(&self, denominator: u32) -> Self {
        if denominator == 1 {
            return *self;
        }
        let edges = |start: u32, length: u32| {
            let first = start / denominator;
            (first, (start + length).div_ceil(denominator) - first)
        };
        let (left, width) = edges(self.region.left, self.region.width);
        let (top, height) = edges(self.region.top, self.region.height);
        let by = f64::from(denominator);
        let Window { left: x, top: y, width: across, height: down } = self.window;
        let window = Window { left: x / by, top: y / by, width: across / by, height: down / by };
        Self { region: Area { left, top, width, height }, window, ..*self }
    }

    /// The same view of a part of the picture, which starts at `origin` and has all that is `needed`.
    #[must_use]
    pub fn onto(&self, needed: Area, origin: (u32, u32)) -> Self {
        let mut view = *self;
        view.region = needed;
        view.region.left -= origin.0;
        view.region.top -= origin.1;
        view.window.left -= f64::from(origin.0);
        view.window.top -= f64::from(origin.1);
        view
    }

    /// The window as it is seen from the region's corner.
    pub fn local(&self) -> Window {
        let left = (self.window.left - f64::from(self.region.left)).max(0.0);
        Window { left, top: (self.window.top - f64::from(self.region.top)).max(0.0), ..self.window }
    }
}

/// How far a filter reaches, in pixels of the smaller picture.
const fn support(filter: Interpolation) -> f64 {
    match filter {
        Interpolation::Nearest | Interpolation::Box => 0.5,
        Interpolation::Bilinear | Interpolation::Hamming => 1.0,
        Interpolation::Bicubic => 2.0,
        Interpolation::Lanczos => 3.0,
    }
}

/// The whole pixels of a window and `reach` around it, inside of a region; start and length.
fn span(region: (u32, u32), window: (f64, f64), reach: f64) -> (u32, u32) {
    let (first, end) = (f64::from(region.0), f64::from(region.0) + f64::from(region.1));
    let start = (window.0 - reach).floor().clamp(first, end - 1.0);
    let stop = (window.0 + window.1 + reach).ceil().clamp(start + 1.0, end);
    (start as u32, (stop - start) as u32)
}

/// Composes changes to a plan.
struct Builder {
    /// None while `view` is the first.
    first: Option<View>,
    rest: Vec<Act>,
    /// What is composed at present.
    view: View,
    flip_x: bool,
    flip_y: bool,
    pixels_max: u64,
}

impl Builder {
    fn of(size: Size, pixels_max: u64) -> Self {
        let view = View::whole(size);
        Self { first: None, rest: Vec::new(), view, flip_x: false, flip_y: false, pixels_max }
    }

    fn plan(mut self) -> Plan {
        let size = self.view.target;
        self.end_view(size);
        let Self { first, rest, view, flip_x, flip_y, .. } = self;
        Plan { first: first.unwrap_or(view), rest, flip_x, flip_y, size }
    }

    /// Ends the view, and starts another one, of a picture of this size.
    fn end_view(&mut self, size: Size) {
        match self.first {
            None => self.first = Some(self.view),
            Some(_) => self.rest.push(Act::View(self.view)),
        }
        self.view = View::whole(size);
    }

    fn apply(&mut self, change: Change, draws: &mut Chance) -> Result<()> {
        let now = self.view.target;
        match change {
            Change::ResizedCrop { size, scale, ratio, filter } => {
                self.crop(resized_crop(now, scale, ratio, draws));
                self.resize(size, filter)
            }
            Change::Resize { size, filter } => self.resize(size, filter),
            Change::Shorter { side, longer_max, filter } => {
                self.resize(shorter(now, side, longer_max), filter)
            }
            Change::Centre(size) => self.centre(size),
            Change::Crop { size, padding, if_needed, fill } => {
                self.pad(padding, fill)?;
                if if_needed {
                    self.pad(missing(self.view.target, size), fill)?;
                }
                self.random_crop(size, draws)
            }
            Change::FlipX(p) => {
                self.flip_x ^= draws.unit() < p;
                Ok(())
            }
            Change::FlipY(p) => {
                self.flip_y ^= draws.unit() < p;
                Ok(())
            }
        }
    }

    /// Cuts `area` out of what there is; seen as the caller sees it, flips included.
    fn crop(&mut self, area: Area) {
        let view = &mut self.view;
        let now = view.target;
        let left = if self.flip_x { now.width - area.left - area.width } else { area.left };
        let top = if self.flip_y { now.height - area.top - area.height } else { area.top };
        if view.filter.is_none() {
            view.region.left += left;
            view.region.top += top;
            (view.region.width, view.region.height) = (area.width, area.height);
            view.window = view.region.window();
        } else {
            let (across, down) = view.factors();
            view.window.left += f64::from(left) * across;
            view.window.top += f64::from(top) * down;
            view.window.width = f64::from(area.width) * across;
            view.window.height = f64::from(area.height) * down;
        }
        view.target = area.size();
    }

    fn resize(&mut self, size: Size, filter: Interpolation) -> Result<()> {
        self.check(size.width.into(), size.height.into())?;
        if self.view.target == size {
            return Ok(());
        }
        if self.view.filter.is_some() {
            self.end_view(self.view.target);
        }
        self.view.filter = Some(filter);
        self.view.target = size;
        Ok(())
    }

    fn pad(&mut self, padding: Padding, fill: u8) -> Result<()> {
        if padding == Padding::default() {
            return Ok(());
        }
        let add =
            |side: u32, one: u32, other: u32| u64::from(side) + u64::from(one) + u64::from(other);
        let width = add(self.view.target.width, padding.left, padding.right);
        let height = add(self.view.target.height, padding.top, padding.bottom);
        let size = self.check(width, height)?;
        let mut padding = padding;
        if self.flip_x {
            (padding.left, padding.right) = (padding.right, padding.left);
        }
        if self.flip_y {
            (padding.top, padding.bottom) = (padding.bottom, padding.top);
        }
        self.end_view(size);
        self.rest.push(Act::Pad(padding, fill));
        Ok(())
    }

    fn centre(&mut self, size: Size) -> Result<()> {
        let now = self.view.target;
        let lacks = |needs: u32, has: u32| needs.saturating_sub(has);
        let (x, y) = (lacks(size.width, now.width), lacks(size.height, now.height));
        let padding =
            Padding { left: x / 2, top: y / 2, right: x.div_ceil(2), bottom: y.div_ceil(2) };
        self.pad(padding, 0)?;
        let now = self.view.target;
        let middle = |has: u32, needs: u32| (f64::from(has - needs) / 2.0).round_ties_even() as u32;
        let (left, top) = (middle(now.width, size.width), middle(now.height, size.height));
        self.crop(Area { left, top, width: size.width, height: size.height });
        Ok(())
    }

    fn random_crop(&mut self, size: Size, chance: &mut Chance) -> Result<()> {
        let now = self.view.target;
        if now.width < size.width || now.height < size.height {
            let has = format!("the picture is {} x {}", now.width, now.height);
            let needs = format!("RandomCrop needs {} x {}", size.width, size.height);
            let advice = "pad_if_needed=true puts a frame around it";
            return Err(Error::invalid(format!("{has}, and {needs}; {advice}")));
        }
        if now == size {
            return Ok(());
        }
        let top = chance.below(u64::from(now.height - size.height) + 1) as u32;
        let left = chance.below(u64::from(now.width - size.width) + 1) as u32;
        self.crop(Area { left, top, width: size.width, height: size.height });
        Ok(())
    }

    /// A size that a picture may have.
    fn check(&self, width: u64, height: u64) -> Result<Size> {
        let pixels = width.checked_mul(height).filter(|pixels| *pixels <= self.pixels_max);
        match (u32::try_from(width), u32::try_from(height), pixels) {
            (Ok(width), Ok(height), Some(_)) => Ok(Size::new(width, height)),
            _ => Err(too_large(width, height, self.pixels_max)),
        }
    }
}

/// A picture with more pixels than it may have.
pub fn too_large(width: u64, height: u64, pixels_max: u64) -> Error {
    let what = format!("a picture of {width} x {height} has more than {pixels_max} pixels");
    Error::invalid(format!("{what}; if it is meant to be, raise max_pixels of Decode"))
}

/// torchvision's way: ten tries, then the middle in the nearest shape.
fn resized_crop(now: Size, scale: [f64; 2], ratio: [f64; 2], chance: &mut Chance) -> Area {
    const TRIES: usize = 10;
    let area = now.pixels() as f64;
    let (shape_low, shape_high) = (ratio[0].ln(), ratio[1].ln());
    for _ in 0..TRIES {
        let part = area * chance.between(scale[0], scale[1]);
        let shape = chance.between(shape_low, shape_high).exp();
        let width = (part * shape).sqrt().round_ties_even();
        let height = (part / shape).sqrt().round_ties_even();
        let fits = |side: f64, most: u32| side >= 1.0 && side <= f64::from(most);
        if fits(width, now.width) && fits(height, now.height) {
            let (width, height) = (width as u32, height as u32);
            let top = chance.below(u64::from(now.height - height) + 1) as u32;
            let left = chance.below(u64::from(now.width - width) + 1) as u32;
            return Area { left, top, width, height };
        }
    }
    let (width, height) = (f64::from(now.width), f64::from(now.height));
    let shape = (width / height).clamp(ratio[0], ratio[1]);
    let (width, height) = if width / height < shape {
        (now.width, side(width / shape, now.height))
    } else if width / height > shape {
        (side(height * shape, now.width), now.height)
    } else {
        (now.width, now.height)
    };
    Area { left: (now.width - width) / 2, top: (now.height - height) / 2, width, height }
}

fn side(length: f64, most: u32) -> u32 {
    (length.round_ties_even() as u32).clamp(1, most)
}

/// The size whose shorter side is `side`, the longer one in proportion and rounded down.
fn shorter(now: Size, side: u32, longer_max: Option<u32>) -> Size {
    let (short, long) = (now.width.min(now.height), now.width.max(now.height));
    let scaled = |side: u32, by: u32, of: u32| {
        let exact = u64::from(side) * u64::from(by) / u64::from(of);
        u32::try_from(exact).unwrap_or(u32::MAX).max(1)
    };
    let (mut new_short, mut new_long) = (side, scaled(side, long, short));
    if let Some(max) = longer_max.filter(|max| new_long > *max) {
        (new_short, new_long) = (scaled(max, new_short, new_long), max);
    }
    if now.width <= now.height {
        Size::new(new_short, new_long)
    } else {
        Size::new(new_long, new_short)
    }
}

/// What a picture lacks, on both sides, as torchvision adds it.
fn missing(now: Size, size: Size) -> Padding {
    let x = size.width.saturating_sub(now.width);
    let y = size.height.saturating_sub(now.height);
    Padding { left: x, top: y, right: x, bottom: y }
}
