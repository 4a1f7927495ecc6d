//! The step as a figure: both planners, one below the other.

use tensorferry::Size;
use tensorferry::plan::activations::simulate::{Doing, Timeline};
use tensorferry::plan::activations::{Prediction, Profile};
use tensorferry_bench::plot::{Block, Curve, Lane, Lanes, Paint, Section};

use super::report::{Replayed, Report};

pub(super) fn chart(profile: &Profile, report: &Report) -> Lanes {
    let (tensors, bytes) = (profile.tensors.len(), Size(profile.bytes()));
    let reading = "compute waits where it is highlighted; the line marks where backward begins";
    Lanes {
        title: "Activations of a step".into(),
        notes: vec![format!("{tensors} tensors, {bytes}; simulated"), reading.into()],
        sections: report.plans.iter().map(|replayed| section(profile, replayed)).collect(),
    }
}

fn section(profile: &Profile, replayed: &Replayed) -> Section {
    let Replayed { plan, timeline } = replayed;
    let Prediction { seconds, forward_stall, written_bytes, .. } = plan.predicted;
    let (stall, written) = (plan.predicted.stall(), Size(written_bytes));
    let name = format!("{}: {seconds:.4} s, of which {stall:.4} s waiting", plan.planner);
    let points = timeline.memory.iter().map(|(at, bytes)| (*at, *bytes as f64)).collect();
    let label = format!("budget {}", Size(plan.budget));
    let curve = Curve { name: "memory".into(), points, limit: plan.budget as f64, label };
    Section {
        name: format!("{name}; {written} written"),
        lanes: vec![
            lane("compute", timeline, |doing| !doing.is_transfer()),
            lane("writes", timeline, |doing| matches!(doing, Doing::Write(_))),
            lane("reads", timeline, |doing| matches!(doing, Doing::Read(_))),
        ],
        curve,
        marks: vec![profile.forward_seconds + forward_stall],
    }
}

fn lane(name: &str, timeline: &Timeline, is_there: impl Fn(Doing) -> bool) -> Lane {
    let spans = timeline.spans.iter().filter(|span| is_there(span.doing));
    let mut blocks: Vec<Block> = spans
        .map(|span| {
            let paint = if span.doing == Doing::Stall { Paint::Highlight } else { Paint::Plain };
            Block { from: span.from, until: span.until, paint }
        })
        .collect();
    blocks.sort_by(|a, b| a.from.total_cmp(&b.from));
    Lane { name: name.into(), blocks }
}
