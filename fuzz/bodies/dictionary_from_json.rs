//! Any bytes give a dictionary that decides, learns and comes back as it was, or an error; as a state
//! and as the user's own.

use tensorferry::plan::checkpoint::{
    Dictionary, Goal, Load, Observed, Own, Reading, Save, Situation, Tool, Tools, Writing,
};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(dictionary) = Dictionary::from_json(text) {
        use_it(dictionary);
    }
    if let Ok(own) = Own::parse(text) {
        use_it(Dictionary::own(own, Goal::Both));
    }
}

fn use_it(mut dictionary: Dictionary) {
    comes_back(&dictionary);
    for size in [0, 4096, 3 << 20, u64::MAX] {
        let eligible = Tools::ALL;
        let (writing, reading) = (Writing::Durable, Reading::Cold);
        let written = dictionary.choose_write(&Save { size, writing, reading, eligible });
        let tool = written.unwrap_or(Tool::Torch);
        assert!(tool.writes());
        record(&mut dictionary, Situation::Durable, tool, size);
        let load = Load { size, reading, written_with: tool, eligible };
        let reader = dictionary.choose_read(&load).expect("what was written can be read");
        assert_eq!(reader.format(), tool.format());
        record(&mut dictionary, Situation::Cold, reader, size);
    }
    comes_back(&dictionary);
    assert!(!dictionary.report().to_string().is_empty());
    let _ = dictionary.tables();
}

fn record(dictionary: &mut Dictionary, situation: Situation, tool: Tool, size: u64) {
    let observed = Observed { situation, tool, size, seconds: 0.01, cpu_seconds: 0.001 };
    dictionary.record(&observed).expect("an observation that can be");
}

fn comes_back(dictionary: &Dictionary) {
    let json = dictionary.to_json().expect("a state can be written");
    assert_eq!(Dictionary::from_json(&json).expect("and read"), *dictionary);
}
