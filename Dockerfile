# The daemon alone, one static file: no libraries, no shell, no package manager, not root, nothing that it has to write. Not built at each change: docs/install.md says
# what was tried.
#
#   docker build -t order-closer .
#   docker run --rm --read-only -v ./order-closer.toml:/etc/order-closer/order-closer.toml:ro order-closer check

FROM rust:1.95-bookworm AS build
WORKDIR /order-closer
COPY . .
# glibc goes into the file, too; since 2.34 it needs no library of the base to look up names. With a target of its own the flag is not for
# what runs while building.
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN cargo build --release --locked --all-features --bin order-closer --target "$(rustc -vV | sed -n 's/^host: //p')" \
    && mv target/*-linux-gnu/release/order-closer /usr/bin/order-closer

# The certificate authorities that TLS needs, a user, and no program but ours.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /usr/bin/order-closer /usr/bin/order-closer
USER 65532:65532
ENTRYPOINT ["/usr/bin/order-closer"]
CMD ["run"]
