//! Faults that are planted into the daemon's way to its servers, to see that the model finds them.

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// Rows are read without being locked.
    NoLock,
    /// The judge takes a paid order for an unpaid one.
    PaidIsUnpaid,
    /// The judge takes a closed order for an unpaid one.
    ClosedIsUnpaid,
    /// The judge's clock is 20 ms ahead.
    HastyJudge,
    /// An event is forgotten now and then.
    NoEvent,
    /// What a transaction did beside the order's row stays when it is rolled back.
    HalfRollback,
    /// The sweep finds nothing.
    BlindSweep,
    /// The sweep finds what has been overdue for long, and nothing else.
    LateSweep,
    /// The look-ahead finds nothing.
    BlindLookAhead,
    /// Nobody is asked before an order closes.
    NobodyAsks,
    /// Keys are not compared with rows.
    NoWitness,
    /// Pauses are not read.
    DeafToPauses,
    /// A delivery that was claimed is forgotten.
    ToldAtMostOnce,
    /// An event does not wait for an earlier one of its order.
    AnyOrder,
    /// An event waits for all that came before it.
    OneForAll,
    /// An answer is taken for good whatever it says.
    AlwaysClose,
}
