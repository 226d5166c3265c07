# The master whose clock can be stepped: the Valkey of the tests under libfaketime. This is not valkey/valkey, which is
# built with jemalloc. jemalloc asks for the time before libfaketime can answer, and hangs.
FROM python:3-slim
COPY tests/install-servers.sh /quorate/tests/
RUN /quorate/tests/install-servers.sh valkey \
  && apt-get update && apt-get install -y --no-install-recommends faketime redis-tools \
  && ln -s /quorate/target/servers/valkey-server /usr/bin/ \
  && ln -s /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/libfaketime.so.1
WORKDIR /data
ENTRYPOINT ["/usr/bin/valkey-server"]
