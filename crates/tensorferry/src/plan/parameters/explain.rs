//! A plan as a table for people.

use std::fmt::Write;

use super::plan::{Gradient, Mode, Plan, Prediction};
use super::profile::Profile;
use crate::plan::text::{self, duration, printable};
use crate::size::Size;

impl Plan {
    /// What is done with each layer and why, then totals and what is predicted. The profile is the one the
    /// plan was made from.
    pub fn explain(&self, profile: &Profile) -> String {
        let names: Vec<String> =
            profile.layers.iter().map(|layer| text::name(&layer.name)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
        let mut text = format!("{}\n\n", printable(&profile.source));
        let _ = writeln!(text, "{:width$}{:>12}  mode  gradient  why", "layer", "parameters");
        for ((name, layer), choice) in names.iter().zip(&profile.layers).zip(&self.choices) {
            let size = Size(layer.parameter_bytes).to_string();
            let mode = if layer.parameter_bytes == 0 { "-" } else { choice.mode.name() };
            let gradient = match choice.gradient {
                Gradient::None => "-",
                Gradient::Device => "device",
                Gradient::Host => "host",
            };
            // Writing to a `String` can't fail.
            let _ =
                writeln!(text, "{name:width$}{size:>12}  {mode:4}  {gradient:8}  {}", choice.why);
        }
        text.push('\n');
        text.push_str(&self.totals(profile));
        text
    }

    fn totals(&self, profile: &Profile) -> String {
        let of_mode = |mode: Mode| {
            let all = profile.layers.iter().zip(&self.choices);
            let all = all.filter(|(layer, _)| layer.parameter_bytes > 0);
            let those = all.filter(|(_, choice)| choice.mode == mode);
            let (count, bytes) = those.fold((0, 0), |(count, bytes), (layer, _)| {
                (count + 1, bytes + layer.parameter_bytes)
            });
            format!("{count} {mode} ({})", Size(bytes))
        };
        let [copied, direct, later] = Mode::ALL.map(of_mode);
        let Prediction { forward_wait, backward_wait, tail_seconds, device_bytes, .. } =
            self.predicted;
        let [step, compute, forward, backward, tail] = [
            self.predicted.seconds,
            self.predicted.compute_seconds,
            forward_wait,
            backward_wait,
            tail_seconds,
        ]
        .map(duration);
        let idle = 100.0 * self.predicted.idle_share();
        let (planner, device, budget) = (self.planner, Size(device_bytes), Size(self.budget));
        let gap = match self.gap_seconds {
            Some(gap) if gap > 0.0 => {
                let share = 100.0 * gap / self.predicted.seconds;
                format!("; no plan is faster by more than {share:.3} %")
            }
            Some(_) => "; no plan is faster".to_owned(),
            None => String::new(),
        };
        format!(
            "{planner}: {copied}, {direct}, {later}{gap}\n\
             {device} on the device, budget {budget}\n\
             predicted {step} an iteration: {compute} of compute, waiting {forward} in forward and \
             {backward} in backward, {tail} after it; idle {idle:.1} %\n"
        )
    }
}
