//! A model of made-up bytes, and an iteration that looks at every one of them.

use std::sync::{Arc, Mutex};

use tensorferry::device::{Device, Emulated, Host};
use tensorferry::parameters::shadow::{Home, Layer, Pause, Shadow, Slice, room};
use tensorferry::plan::parameters::{
    self, Choice, Direction, Gradient, Link, Mode, Plan, Planner, Prediction, Profile, VERSION,
};
use tensorferry::{Error, Result};

/// A link that takes hardly any time.
pub const FAST: &str = "capacity=64MiB,bandwidth=100GB/s,latency=1us";

pub struct Bench {
    pub emulated: Option<Arc<Emulated>>,
    pub device: Arc<dyn Device>,
    pub shadow: Shadow,
    pub sizes: Vec<Vec<usize>>,
    pub parameters: Arc<Home>,
    pub gradients: Arc<Home>,
    /// Whether each layer has a gradient, as the installed plan has it.
    trained: Mutex<Vec<bool>>,
}

/// Nobody wants a wait to end.
pub fn never() -> Pause<'static> {
    Box::leak(Box::new(|| Ok::<(), Error>(())))
}

fn byte(what: usize, layer: usize, parameter: usize, iteration: usize) -> u8 {
    (what * 101 + layer * 17 + parameter * 5 + iteration * 53 + 1) as u8
}

impl Bench {
    pub fn new(spec: &str, sizes: &[&[usize]]) -> Self {
        let device = Arc::new(Emulated::new(spec.parse().unwrap()).unwrap());
        Self::on(device.clone(), Some(device), sizes)
    }

    pub fn on_host(sizes: &[&[usize]]) -> Self {
        Self::on(Arc::new(Host::with_capacity(64 << 20)), None, sizes)
    }

    fn on(device: Arc<dyn Device>, emulated: Option<Arc<Emulated>>, sizes: &[&[usize]]) -> Self {
        let shadow = Shadow::new(device.clone(), None).unwrap();
        let bytes =
            sizes.iter().flat_map(|sizes| sizes.iter()).map(|size| size.next_multiple_of(64));
        let bytes = bytes.sum::<usize>().max(1);
        let home = || Arc::new(shadow.home(bytes).unwrap());
        let (parameters, gradients) = (home(), home());
        let sizes = sizes.iter().map(|sizes| sizes.to_vec()).collect();
        let trained = Mutex::new(Vec::new());
        Self { emulated, device, shadow, sizes, parameters, gradients, trained }
    }

    pub fn emulated(&self) -> &Emulated {
        self.emulated.as_ref().unwrap()
    }

    pub fn device_bytes(&self) -> u64 {
        self.device.facts().used_bytes
    }

    fn slices(&self, home: &Arc<Home>, is_empty: &dyn Fn(usize) -> bool) -> Vec<Vec<Slice>> {
        let mut offset = 0;
        let mut slice = |layer: usize, size: usize| {
            let at = offset;
            offset += size.next_multiple_of(64);
            Slice {
                home: Arc::clone(home),
                offset: at,
                len: if is_empty(layer) { 0 } else { size },
            }
        };
        let layer = |(layer, sizes): (usize, &Vec<usize>)| {
            sizes.iter().map(|size| slice(layer, *size)).collect()
        };
        self.sizes.iter().enumerate().map(layer).collect()
    }

    pub fn layers(&self, plan: &Plan) -> Vec<Layer> {
        let parameters = self.slices(&self.parameters, &|_| false);
        let is_frozen = |layer: usize| plan.choices[layer].gradient == Gradient::None;
        let gradients = self.slices(&self.gradients, &is_frozen);
        let layer = |(parameters, gradients)| Layer { parameters, gradients };
        parameters.into_iter().zip(gradients).map(layer).collect()
    }

    /// Layers without bytes have no gradient either.
    pub fn place(&self, layer: usize, place: Gradient) -> Gradient {
        if self.sizes[layer].iter().all(|size| *size == 0) { Gradient::None } else { place }
    }

    pub fn profile(&self, places: &[Gradient]) -> Profile {
        let layer = |(number, sizes): (usize, &Vec<usize>)| {
            let bytes = room(sizes.iter().copied()) as u64;
            let is_frozen = self.place(number, places[number]) == Gradient::None;
            parameters::Layer {
                name: format!("l{number}"),
                parameter_bytes: bytes,
                gradient_bytes: if is_frozen { 0 } else { bytes },
                forward_seconds: 1e-3,
                backward_seconds: 2e-3,
                direct_forward_seconds: 2e-3,
                direct_backward_seconds: 4e-3,
                direct_forward_bytes: bytes,
                direct_backward_bytes: bytes,
                direct_gradient_seconds: 1e-3,
                update_seconds: 1e-3,
                copy_seconds: None,
                gradient_copy_seconds: None,
            }
        };
        let direction = Direction { bytes_per_second: 1e9, latency_seconds: 1e-6 };
        let link = Link {
            inwards: direction,
            outwards: direction,
            direct_slowdown: 1.0,
            direct_shares: true,
        };
        let layers = self.sizes.iter().enumerate().map(layer).collect();
        Profile { version: VERSION, source: "made up".into(), layers, link, work_bytes: 0 }
    }

    pub fn plan(&self, modes: &[Mode], places: &[Gradient]) -> (Plan, Profile) {
        let choice = |(layer, (mode, place)): (usize, (&Mode, &Gradient))| Choice {
            mode: *mode,
            gradient: self.place(layer, *place),
            why: "a test wants it".into(),
        };
        let choices = modes.iter().zip(places).enumerate().map(choice).collect();
        let copied = |mode| {
            let has_bytes = |layer: &usize| self.sizes[*layer].iter().any(|size| *size > 0);
            (0..modes.len()).filter(move |layer| modes[*layer] == mode).filter(has_bytes)
        };
        let plan = Plan {
            version: VERSION,
            planner: Planner::Exact,
            budget: self.shadow.budget(),
            gradient_reserve: 0,
            choices,
            copy_order: copied(Mode::Gfgb).chain(copied(Mode::Dfgb).rev()).collect(),
            predicted: Prediction::default(),
            gap_seconds: None,
        };
        (plan, self.profile(places))
    }

    pub fn install(&self, modes: &[Mode], places: &[Gradient]) -> Result<()> {
        let (plan, profile) = self.plan(modes, places);
        self.shadow.install(self.layers(&plan), &plan, &profile)?;
        let is_trained = |choice: &Choice| choice.gradient != Gradient::None;
        *self.trained.lock().unwrap() = plan.choices.iter().map(is_trained).collect();
        Ok(())
    }

    /// Device bytes of a course.
    pub fn rooms(&self, modes: &[Mode], places: &[Gradient]) -> u64 {
        let each = self.sizes.iter().zip(modes.iter().zip(places)).map(|(sizes, (mode, place))| {
            let kept = usize::from(mode.is_copied()) + usize::from(*place == Gradient::Device);
            (room(sizes.iter().copied()) * kept) as u64
        });
        each.sum()
    }

    /// New parameters, and gradients that nobody has made.
    pub fn fill(&self, iteration: usize) {
        let slices = self.slices(&self.parameters, &|_| false);
        for (layer, slices) in slices.iter().enumerate() {
            for (parameter, slice) in slices.iter().enumerate() {
                let range = slice.offset..slice.offset + slice.len;
                let value = byte(0, layer, parameter, iteration);
                self.parameters.write(range).unwrap().fill(value);
            }
        }
        self.gradients.write(0..self.gradients.len()).unwrap().fill(0);
    }

    /// Enters a layer and leaves it; whether it was on the device.
    pub fn visit(&self, layer: usize, is_backward: bool) -> bool {
        let bytes = self.sizes[layer].iter().sum::<usize>() as u64;
        let (is_on_device, _) = self.shadow.enter(layer, is_backward, bytes, never()).unwrap();
        self.shadow.leave(layer, is_backward, never()).unwrap();
        is_on_device
    }

    /// Computes with a layer: looks at all of its parameters, and makes its gradients.
    pub fn compute(&self, layer: usize, is_backward: bool, iteration: usize) {
        let bytes = self.sizes[layer].iter().sum::<usize>() as u64;
        self.shadow.enter(layer, is_backward, bytes, never()).unwrap();
        let see = |seen: &[&[u8]]| {
            let lengths: Vec<_> = seen.iter().map(|bytes| bytes.len()).collect();
            assert_eq!(lengths, self.sizes[layer]);
            for (parameter, bytes) in seen.iter().enumerate() {
                let expected = byte(0, layer, parameter, iteration);
                assert!(bytes.iter().all(|byte| *byte == expected), "layer {layer}, {parameter}");
            }
        };
        self.shadow.look(layer, is_backward, see).unwrap();
        if is_backward {
            self.make_gradients(layer, iteration);
        }
        self.shadow.leave(layer, is_backward, never()).unwrap();
    }

    /// In the order of the last parameter first, as autograd may have it.
    pub fn make_gradients(&self, layer: usize, iteration: usize) {
        for (parameter, size) in self.sizes[layer].iter().enumerate().rev() {
            let bytes = vec![byte(1, layer, parameter, iteration); *size];
            match self.shadow.gradient(layer, parameter, &bytes) {
                Err(error) if error.to_string().contains("has no gradient of") => {}
                result => result.unwrap(),
            }
        }
    }

    /// Whether a layer's gradients are those of an iteration: all of them, or none.
    pub fn has_gradients(&self, layer: usize, iteration: usize) -> Option<bool> {
        let slices = &self.slices(&self.gradients, &|_| false)[layer];
        let same = |(parameter, slice): (usize, &Slice)| {
            let bytes = self.gradients.read(slice.offset..slice.offset + slice.len).unwrap();
            let made = bytes.iter().all(|found| *found == byte(1, layer, parameter, iteration));
            let none = bytes.iter().all(|found| *found == 0);
            (made, none)
        };
        let found: Vec<_> = slices.iter().enumerate().map(same).collect();
        if found.iter().all(|(made, _)| *made) {
            return Some(true);
        }
        found.iter().all(|(_, none)| *none).then_some(false)
    }

    /// Forward, backward and what must hold after them.
    pub fn iterate(&self, iteration: usize) {
        let layers = self.sizes.len();
        self.shadow.begin(never()).unwrap();
        (0..layers).for_each(|layer| self.compute(layer, false, iteration));
        (0..layers).rev().for_each(|layer| self.compute(layer, true, iteration));
        self.shadow.end(never()).unwrap();
        let report = self.shadow.last().unwrap();
        let trained = self.trained.lock().unwrap();
        assert_eq!(trained.len(), layers, "install() of the bench was called");
        for (layer, is_trained) in trained.iter().copied().enumerate() {
            let bytes: usize = self.sizes[layer].iter().sum();
            let moved = if is_trained { bytes as u64 } else { 0 };
            assert_eq!(report.layers[layer].gradient_bytes, moved, "layer {layer}");
            assert_eq!(self.has_gradients(layer, iteration), Some(is_trained || bytes == 0));
        }
    }
}
