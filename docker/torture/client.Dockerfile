# A datacenter: `links` is its network, and `quorate` is for `docker exec`.
FROM rust:1 AS build
WORKDIR /quorate
COPY . .
RUN cargo build --locked --release -p quorate-cli --features test-util \
  && cargo build --locked --release --manifest-path docker/links/Cargo.toml --target-dir target

FROM debian:stable-slim
RUN apt-get update && apt-get install -y --no-install-recommends iptables
COPY --from=build /quorate/target/release/quorate /quorate/target/release/links /usr/bin/
ENTRYPOINT ["/usr/bin/links"]
