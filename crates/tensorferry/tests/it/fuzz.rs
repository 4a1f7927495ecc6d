//! The fuzz targets' bodies, on their seeds and on mutations of them.

#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[path = "../../../../fuzz/bodies"]
mod bodies {
    pub mod bitmap_decode;
    pub mod bitmap_encode;
    pub mod checkpoint_open;
    pub mod dictionary_from_json;
    pub mod half;
    pub mod header_decode;
    pub mod index_parse;
    pub mod parameters_parse;
    pub mod profile_parse;
    pub mod size_parse;
    pub mod structure_parse;
    pub mod tar_index;
}

const MUTATIONS: usize = 2000;

#[test]
fn seeds_of_the_bitmap_decoder_and_their_mutations_never_panic() {
    replay::replay("bitmap_decode", MUTATIONS, bodies::bitmap_decode::run);
}

#[test]
fn seeds_of_the_bitmap_encoder_and_their_mutations_come_back_to_the_last_bit() {
    replay::replay("bitmap_encode", MUTATIONS, bodies::bitmap_encode::run);
}

#[test]
fn seeds_of_halves_and_their_mutations_convert_alike_at_every_level() {
    replay::replay("half", MUTATIONS, bodies::half::run);
}

#[test]
fn seeds_of_sizes_and_their_mutations_never_panic() {
    replay::replay("size_parse", MUTATIONS, bodies::size_parse::run);
}

#[test]
fn seeds_of_headers_and_their_mutations_give_consistent_headers_or_errors() {
    replay::replay("header_decode", MUTATIONS, bodies::header_decode::run);
}

#[test]
fn seeds_of_structures_and_their_mutations_stay_inside_of_what_is_stored_or_are_errors() {
    replay::replay("structure_parse", MUTATIONS, bodies::structure_parse::run);
}

#[test]
fn seeds_of_indexes_and_their_mutations_name_files_and_ranks_that_exist_or_are_errors() {
    replay::replay("index_parse", MUTATIONS, bodies::index_parse::run);
}

#[test]
fn seeds_of_checkpoints_and_their_mutations_are_loaded_as_they_are_or_are_errors() {
    replay::replay("checkpoint_open", MUTATIONS, bodies::checkpoint_open::run);
}

#[test]
fn seeds_of_dictionaries_and_their_mutations_decide_and_learn_or_are_errors() {
    replay::replay("dictionary_from_json", MUTATIONS, bodies::dictionary_from_json::run);
}

#[test]
fn seeds_of_tars_and_their_mutations_give_whole_samples_inside_of_them_or_errors() {
    replay::replay("tar_index", MUTATIONS, bodies::tar_index::run);
}

#[test]
fn seeds_of_profiles_and_their_mutations_can_be_planned_or_are_errors() {
    replay::replay("profile_parse", MUTATIONS, bodies::profile_parse::run);
}

#[test]
fn seeds_of_profiles_of_parameters_and_their_mutations_can_be_planned_or_are_errors() {
    replay::replay("parameters_parse", MUTATIONS, bodies::parameters_parse::run);
}
