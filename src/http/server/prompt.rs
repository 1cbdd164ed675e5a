//! A connection whose other end takes what is written to it, or is given up: what nobody reads would keep its place for ever.

use std::{
    io::{Error, ErrorKind, IoSlice, Result},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// A stream that fails when nothing of what is to be written is taken for so long.
#[derive(Debug)]
pub(super) struct Prompt<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Prompt<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, late: None }
    }

    /// What came of a write, unless it has waited for too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let limit = self.limit;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(late.as_mut().poll(context));
        // Whoever tries once more waits anew.
        late.as_mut().reset(Instant::now() + limit);
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "nobody takes what is written")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.in_time(context, written)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.in_time(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        this.in_time(context, shut)
    }
}
