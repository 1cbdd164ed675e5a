# The daemon alone: no shell, no package manager, not root, nothing that it has to write. Not built at each change: docs/install.md says
# what was tried.
#
#   docker build -t order-closer .
#   docker run --rm --read-only -v ./order-closer.toml:/etc/order-closer/order-closer.toml:ro order-closer check

FROM rust:1.95-bookworm AS build
WORKDIR /order-closer
COPY . .
RUN cargo build --release --locked --all-features --bin order-closer

# glibc and the certificate authorities that TLS needs, of the same Debian.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /order-closer/target/release/order-closer /usr/bin/order-closer
USER 65532:65532
ENTRYPOINT ["/usr/bin/order-closer"]
CMD ["run"]
