//! The compiled half of the Python package, `tensorferry._lib`.
//!
//! It holds no logic: a function here converts its arguments, releases the GIL and calls the core
//! through `guard::guarded`, which also turns failures into exceptions. Whatever can be written
//! in Python without copying bytes or holding the GIL is written there.

mod activations;
mod allocator;
mod checkpoint;
mod cli;
mod data;
mod engine;
mod errors;
mod guard;
mod json;
mod memory;
mod metrics;
mod optim;
mod per_process;
mod release;
mod shadow;
mod size;
mod tools;
mod wait;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tensorferry::Kind;

/// The compiled core. Private: its names change without notice; use `tensorferry`.
#[pymodule]
fn _lib(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("KINDS", PyTuple::new(module.py(), Kind::ALL.map(Kind::name))?)?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::File>()?;
    module.add_class::<engine::Pending>()?;
    module.add_class::<memory::Buffer>()?;
    module.add_class::<checkpoint::Checkpoint>()?;
    module.add_class::<checkpoint::Saving>()?;
    module.add_class::<tools::Dictionary>()?;
    module.add_class::<checkpoint::Draft>()?;
    module.add_class::<activations::Activations>()?;
    module.add_class::<activations::Activation>()?;
    module.add_class::<allocator::BlockWatch>()?;
    module.add_class::<optim::OptimizerStore>()?;
    module.add_class::<shadow::Home>()?;
    module.add_class::<shadow::Sight>()?;
    module.add_class::<shadow::Shadow>()?;
    module.add_class::<data::Source>()?;
    module.add_class::<data::Loader>()?;
    module.add_class::<data::Run>()?;
    module.add_function(wrap_pyfunction!(checkpoint::save, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::save_behind, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::probe, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::recognise, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::judge_index, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::seal_index, module)?)?;
    module.add_function(wrap_pyfunction!(tools::add_tool, module)?)?;
    module.add_function(wrap_pyfunction!(engine::_leave, module)?)?;
    module.add_function(wrap_pyfunction!(engine::_delay_for_tests, module)?)?;
    module.add_function(wrap_pyfunction!(memory::headroom, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_text, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_limit, module)?)?;
    module.add_function(wrap_pyfunction!(memory::limit_memory, module)?)?;
    module.add_function(wrap_pyfunction!(errors::os_error, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::metrics_text, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::trace_start, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::trace_finish, module)?)?;
    module.add_function(wrap_pyfunction!(cli::cli_main, module)?)?;
    module.add_function(wrap_pyfunction!(allocator::torch_imports, module)?)?;
    module.add_function(wrap_pyfunction!(allocator::spare_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(optim::adam_step, module)?)?;
    module.add_function(wrap_pyfunction!(optim::zeroed, module)?)?;
    module.add_function(wrap_pyfunction!(size::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(guard::check_caller, module)?)?;
    module.add_function(wrap_pyfunction!(guard::_panic_for_tests, module)?)?;
    module.add_function(wrap_pyfunction!(errors::_error_for_tests, module)?)
}
