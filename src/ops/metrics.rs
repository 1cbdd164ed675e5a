//! Metrics for Prometheus: what [`crate::metric`] says is measured, gathered and written down.

use metrics::{Recorder, Unit, with_recorder};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::metric::{self, Kind, Metric};

/// What has been measured, since the start.
#[derive(Clone)]
pub struct Measured(PrometheusHandle);

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measured").finish_non_exhaustive()
    }
}

impl Measured {
    /// Begins to measure: for this process, once.
    ///
    /// # Errors
    /// Says what is wrong with the buckets of a histogram, or that this process measures already.
    pub fn begin() -> Result<Self, String> {
        let mut builder = PrometheusBuilder::new();
        for metric in metric::ALL {
            if let Kind::Histogram(buckets) = metric.kind {
                let named = Matcher::Full(metric.name.to_owned());
                builder = builder.set_buckets_for_metric(named, buckets).map_err(|error: BuildError| error.to_string())?;
            }
        }
        let recorder = builder.build_recorder();
        let measured = Self(recorder.handle());
        metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
        metric::begin();
        metric::ALL.iter().copied().for_each(describe);
        metric::BUILD.set(1.0, &[env!("CARGO_PKG_VERSION")]);
        Ok(measured)
    }

    /// In the text format of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.render()
    }

    /// Sorts what has been measured into buckets. Has to be called every few seconds: until then each value is kept.
    pub fn tidy_up(&self) {
        self.0.run_upkeep();
    }
}

fn describe(metric: &Metric) {
    let (name, help) = (metric.name.into(), metric.help.trim_start().into());
    let unit = metric.name.ends_with("_seconds").then_some(Unit::Seconds);
    with_recorder(|recorder: &dyn Recorder| match metric.kind {
        Kind::Counter => recorder.describe_counter(name, unit, help),
        Kind::Gauge => recorder.describe_gauge(name, unit, help),
        Kind::Histogram(_) => recorder.describe_histogram(name, unit, help),
    });
}
