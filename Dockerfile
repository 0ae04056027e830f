# The image of Quire: every command of `quire`, without a compiler, without Java.
#
#   docker build -t quire .
#   docker run -p 6650:6650 -p 8080:8080 -v quire:/var/lib/quire quire
#
# The first stage has pip and the sources; the second one only the environment that it made.
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY scripts/lock/dev.txt scripts/lock/dev.txt
RUN python -m venv /opt/quire
COPY pyproject.toml README.md LICENSE ./
COPY broker broker
COPY bookie bookie
COPY managed_ledger managed_ledger
COPY cursors cursors
COPY autorecovery autorecovery
COPY quire quire
COPY pyspark_quire pyspark_quire
# The lock bounds the versions; packages that only tests need are not installed.
RUN sed -E '/^ *--hash|^ *#/d; s/ *\\$//' scripts/lock/dev.txt > constraints.txt \
    && /opt/quire/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: \
    --no-binary quire-broker --constraint constraints.txt . \
    && /opt/quire/bin/python -m compileall -q /opt/quire/lib \
    && rm -rf /opt/quire/lib/python3.13/site-packages/pip /opt/quire/lib/python3.13/site-packages/pip-*

FROM python:3.13-slim-bookworm
RUN groupadd --gid 10001 quire \
    && useradd --uid 10001 --gid quire --home-dir /var/lib/quire --shell /usr/sbin/nologin quire \
    && install -d -o quire -g quire -m 0750 /var/lib/quire
COPY --from=build /opt/quire /opt/quire
ENV PATH=/opt/quire/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/quire
VOLUME /var/lib/quire
EXPOSE 6650 8080
# SIGTERM stops every server in order; brokerShutdownTimeoutMs is 10 s, so `docker stop -t 30`.
STOPSIGNAL SIGTERM
# Asks the web port whether the server serves. A bookie has none by default: give it `--no-healthcheck`, or
# httpServerEnabled=true and QUIRE_HEALTH_URL=http://127.0.0.1:8000/heartbeat.
ENV QUIRE_HEALTH_URL=http://127.0.0.1:8080/status.html
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['QUIRE_HEALTH_URL'], timeout=4)"]
ENTRYPOINT ["quire"]
CMD ["standalone", "--data-dir", "/var/lib/quire/data"]
