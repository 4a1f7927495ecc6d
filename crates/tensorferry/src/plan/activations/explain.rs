//! A plan as a table for people.

use std::fmt::Write;

use super::plan::{Place, Plan, Prediction};
use super::profile::Profile;
use crate::plan::text::{self, duration};
use crate::size::Size;

impl Plan {
    /// What is done with each tensor and why, then totals and what is predicted. The profile is the one the
    /// plan was made from.
    pub fn explain(&self, profile: &Profile) -> String {
        let names: Vec<String> =
            profile.tensors.iter().map(|tensor| text::name(&tensor.name)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
        let mut text = format!("{:width$}{:>12}  {:16}why\n", "tensor", "size", "place");
        for ((name, tensor), choice) in names.iter().zip(&profile.tensors).zip(&self.choices) {
            let size = Size(tensor.bytes).to_string();
            let place = match choice.place {
                Place::Keep => "memory".to_owned(),
                Place::Offload { encoded: false } => "disk".to_owned(),
                Place::Offload { encoded: true } => format!("disk, 1/{:.2}", tensor.ratio()),
            };
            // Writing to a `String` can't fail.
            let _ = writeln!(text, "{name:width$}{size:>12}  {place:16}{}", choice.why);
        }
        text.push('\n');
        text.push_str(&self.totals(profile));
        text
    }

    fn totals(&self, profile: &Profile) -> String {
        let offloaded = || {
            let all = profile.tensors.iter().zip(&self.choices);
            all.filter(|(_, choice)| choice.place.is_offloaded()).map(|(tensor, _)| tensor.bytes)
        };
        let (count, all) = (offloaded().count(), profile.tensors.len());
        let (moved, bytes) = (Size(offloaded().sum()), Size(profile.bytes()));
        let Prediction { forward_stall, backward_stall, seconds, peak_bytes, .. } = self.predicted;
        let (written, read) = (Size(self.predicted.written_bytes), Size(self.predicted.read_bytes));
        let [step, forward, backward, compute] =
            [seconds, forward_stall, backward_stall, profile.seconds()].map(duration);
        let (peak, budget) = (Size(peak_bytes), Size(self.budget));
        let planner = self.planner;
        format!(
            "{planner}: {count} of {all} tensors to disk, {moved} of {bytes}\n\
             written {written}, read {read}; at most {peak} in memory, budget {budget}\n\
             predicted {step} a step: {compute} of compute, waiting {forward} in forward and \
             {backward} in backward\n"
        )
    }
}
