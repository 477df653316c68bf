//! What stands in criterion's files.

use serde::{Deserialize, Serialize};

/// `benchmark.json`: what was benchmarked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The group.
    pub group_id: String,
    /// The function within it.
    pub function_id: Option<String>,
    /// The parameter the function was given.
    pub value_str: Option<String>,
    /// Work of one call, by its unit.
    #[serde(default)]
    pub throughput: Option<Throughput>,
    /// All of it, with `/` between.
    pub full_id: String,
    /// Its folder, from the root.
    pub directory_name: String,
    /// What criterion prints.
    pub title: String,
}

/// Work of one call; criterion has other units, which say nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Throughput {
    /// FLOPs of a case.
    Elements {
        /// How many.
        #[serde(rename = "Elements")]
        elements: u64,
    },
    /// Any other unit.
    Other(serde_json::Value),
}

/// `sample.json`: what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// `Flat` or `Linear`.
    pub sampling_mode: String,
    /// Calls of each sample.
    pub iters: Vec<f64>,
    /// Time of each sample, of all its calls together, in the unit of whatever clock
    /// criterion was given: a plain number until it is read as one of ours.
    pub times: Vec<f64>,
    /// The invocation that each sample is of. Criterion does not know the word: it
    /// ignores the member, and one of its own files is one invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocations: Option<Vec<u32>>,
}

/// `estimates.json`: what follows for one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// Of the samples.
    pub mean: Estimate,
    /// Of the samples.
    pub median: Estimate,
    /// Times 1.4826, so that it estimates the standard deviation of a normal.
    pub median_abs_dev: Estimate,
    /// Of times over calls; only where these grow from sample to sample.
    #[serde(default)]
    pub slope: Option<Estimate>,
    /// With n - 1.
    pub std_dev: Estimate,
}

/// A figure, and how sure it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// From resampling.
    pub confidence_interval: ConfidenceInterval,
    /// Of the samples as they are.
    pub point_estimate: f64,
    /// Standard deviation over the resamples.
    pub standard_error: f64,
}

/// Ends of an interval, and its coverage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceInterval {
    /// Between 0 and 1.
    pub confidence_level: f64,
    /// Lower end.
    pub lower_bound: f64,
    /// Upper end.
    pub upper_bound: f64,
}
