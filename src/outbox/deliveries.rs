//! What a relay needs of the outbox.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{Claimed, Result, Settled, TargetState, Want};
use crate::store::Outbox;

/// Deliveries, to be claimed and settled, and what is known of their targets.
#[async_trait]
pub trait Deliveries: fmt::Debug + Send + Sync {
    /// As [`Outbox::exchange`].
    ///
    /// # Errors
    /// As the database says, sorted: then nothing is settled, and nothing claimed.
    async fn exchange(&self, target: &str, claimant: &str, lease: Duration, settled: &Settled, wants: &[Want])
    -> Result<Vec<Vec<Claimed>>>;

    /// As [`Outbox::bring_forward`].
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn bring_forward(&self, target: &str, ago: Duration, within: Duration, limit: u32) -> Result<u64>;

    /// As [`Outbox::introduce`].
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn introduce(&self, target: &str) -> Result<()>;

    /// What is known of this target.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn target_state(&self, target: &str) -> Result<Option<TargetState>>;

    /// Whether it is kept since when a delivery has been failing.
    fn knows_targets(&self) -> bool;
}

#[async_trait]
impl Deliveries for Outbox {
    async fn exchange(
        &self,
        target: &str,
        claimant: &str,
        lease: Duration,
        settled: &Settled,
        wants: &[Want],
    ) -> Result<Vec<Vec<Claimed>>> {
        Self::exchange(self, target, claimant, lease, settled, wants).await
    }

    async fn bring_forward(&self, target: &str, ago: Duration, within: Duration, limit: u32) -> Result<u64> {
        Self::bring_forward(self, target, ago, within, limit).await
    }

    async fn introduce(&self, target: &str) -> Result<()> {
        Self::introduce(self, target).await
    }

    async fn target_state(&self, target: &str) -> Result<Option<TargetState>> {
        Ok(self.target_states(Some(target)).await?.pop())
    }

    fn knows_targets(&self) -> bool {
        Self::knows_targets(self)
    }
}
