//! The result of a measurement.

use serde_json::{Map, Value};

/// The unit of what is measured in bytes, by its symbol as bit/s and s/GB have theirs (IEC 80000-13).
pub const BYTES: &str = "B";

/// One measured value, with what it is a value of.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The scenario, such as `lro`.
    pub bench: &'static str,
    /// What was done in it, such as `in_order`.
    pub case: String,
    /// Who did it: `wharf`, `kernel`, or a peer.
    pub system: String,
    /// What else was varied, such as `flows`, by name and in the order to be shown.
    pub varied: Vec<(&'static str, Value)>,
    /// What was measured, such as `ns_per_packet`.
    pub metric: &'static str,
    /// Its unit, such as `ns`.
    pub unit: &'static str,
    /// How much it was: the median, where it was measured several times.
    pub value: f64,
    /// The value of each repetition, in the order in which they ran; empty where there is nothing but
    /// `value`.
    pub samples: Vec<f64>,
}

impl Figure {
    /// One JSON object: `bench`, `case`, `system`, what was varied, `metric`, `unit`, `value`; of
    /// what was repeated also `min`, `max` and all `samples`.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("bench".into(), self.bench.into());
        object.insert("case".into(), self.case.as_str().into());
        object.insert("system".into(), self.system.as_str().into());
        for (name, value) in &self.varied {
            object.insert((*name).into(), value.clone());
        }
        object.insert("metric".into(), self.metric.into());
        object.insert("unit".into(), self.unit.into());
        object.insert("value".into(), self.value.into());
        if let (Some(min), Some(max)) = (self.extreme(f64::min), self.extreme(f64::max)) {
            object.insert("min".into(), min.into());
            object.insert("max".into(), max.into());
            object.insert("samples".into(), self.samples.clone().into());
        }
        Value::Object(object)
    }

    fn extreme(&self, of: fn(f64, f64) -> f64) -> Option<f64> {
        self.samples.iter().copied().reduce(of)
    }
}

/// Receives what a scenario reports while it runs.
pub trait Report {
    /// A figure is known.
    fn figure(&mut self, figure: Figure);

    /// What is being done, as `done` of `total` steps; for a progress line.
    fn progress(&mut self, done: usize, total: usize, what: &str);

    /// Something that the reader must know to read the figures, such as a peer that is absent and
    /// why.
    fn notice(&mut self, text: &str);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_repeated_is_told_with_its_extremes() {
        let figure = |samples| Figure {
            bench: "b",
            case: "c".to_owned(),
            system: "s".to_owned(),
            varied: vec![("flows", 3.into())],
            metric: "m",
            unit: "u",
            value: 2.0,
            samples,
        };
        let once = json!({
            "bench": "b", "case": "c", "system": "s", "flows": 3, "metric": "m", "unit": "u",
            "value": 2.0,
        });
        assert_eq!(figure(Vec::new()).json(), once);
        let mut repeated = once;
        repeated["min"] = json!(1.0);
        repeated["max"] = json!(4.0);
        repeated["samples"] = json!([2.0, 4.0, 1.0]);
        assert_eq!(figure(vec![2.0, 4.0, 1.0]).json(), repeated);
    }
}
