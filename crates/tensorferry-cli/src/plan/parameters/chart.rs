//! The iteration as a figure: the plan, and below it every layer copied.

use tensorferry::Size;
use tensorferry::plan::parameters::simulate::{Doing, Lane as Who, Span, Timeline};
use tensorferry::plan::parameters::{Gradient, Plan, Prediction, Profile};
use tensorferry_bench::plot::{Block, Curve, Lane, Lanes, Paint, Section};

use super::report::Report;

pub(super) fn chart(profile: &Profile, report: &Report) -> Lanes {
    let (layers, bytes) = (profile.layers.len(), Size(profile.parameter_bytes()));
    let reading = "highlighted: compute waits, kernels read in place, gradients that are written in \
                   place; the line marks where backward begins";
    let Report { plan, timeline, all_copied, .. } = report;
    let whose = plan.planner.name();
    let fits = if all_copied.fits { "" } else { " (does not fit)" };
    let gradients = plan.gradients();
    Lanes {
        title: "Parameters of an iteration".into(),
        notes: vec![
            profile.source.clone(),
            format!("{layers} layers, {bytes} of parameters; simulated"),
            reading.into(),
        ],
        sections: vec![
            section(whose, timeline, &plan.predicted, plan, &gradients),
            section(
                &format!("all copied{fits}"),
                &all_copied.timeline,
                &all_copied.predicted,
                plan,
                &gradients,
            ),
        ],
    }
}

fn section(
    name: &str,
    timeline: &Timeline,
    came: &Prediction,
    plan: &Plan,
    gradients: &[Gradient],
) -> Section {
    let Prediction { seconds, device_bytes, .. } = *came;
    let (idle, device) = (100.0 * came.idle_share(), Size(device_bytes));
    let backward = timeline.spans.iter().find(|span| matches!(span.doing, Doing::Backward(_)));
    let lanes = [
        ("compute", Who::Compute),
        ("link in", Who::In),
        ("link out", Who::Out),
        ("update", Who::Update),
    ];
    Section {
        name: format!("{name}: {seconds:.4} s, idle {idle:.1} %, {device} on the device"),
        lanes: lanes.map(|(name, who)| lane(name, timeline, who, gradients)).to_vec(),
        curve: Curve {
            name: "device".into(),
            points: vec![(0.0, device_bytes as f64), (seconds, device_bytes as f64)],
            limit: plan.budget.max(device_bytes) as f64,
            label: format!("budget {}", Size(plan.budget)),
        },
        marks: backward.map(|span| span.from).into_iter().collect(),
    }
}

fn lane(name: &str, timeline: &Timeline, who: Who, gradients: &[Gradient]) -> Lane {
    let block = |span: &Span| {
        let is_marked = match span.doing {
            Doing::Wait(_) | Doing::Read(_) => true,
            Doing::Gradient(layer) => gradients[layer] == Gradient::Host,
            _ => false,
        };
        let paint = if is_marked { Paint::Highlight } else { Paint::Plain };
        Block { from: span.from, until: span.until, paint }
    };
    Lane { name: name.into(), blocks: timeline.lane(who).map(block).collect() }
}
