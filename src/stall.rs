//! What a limit says about the other side when this process stood still: nothing.
//!
//! A process that is stopped, or gets no processor, finds all its limits passed when it runs again, before it has read the
//! answers that came meanwhile.

use std::time::Duration;

use tokio::time::Instant;

/// Asks once more where a question failed after more than twice the limit that it has.
///
/// # Errors
/// As the question.
pub async fn ask_again<T, E, F>(limit: Duration, question: impl Fn() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let asked = Instant::now();
    match question().await {
        Err(_) if asked.elapsed() > 2 * limit => question().await,
        answer => answer,
    }
}
