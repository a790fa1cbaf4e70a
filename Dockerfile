# Never built here. The command kmip-data in an image; all files it writes are below /data.
#
#   docker build -t kmip-data --build-arg TORCH_INDEX=ADDRESS .       # for CPUs: ADDRESS of torch's CPU builds (docs/install.md)
#   docker build -t kmip-data:cuda --build-arg EXTRAS=demo,gpu,cuda . # for NVIDIA GPUs: the usual build of torch brings CUDA
#   docker run --rm -v kmip-data:/data kmip-data demo
#   docker run --rm --gpus all -v kmip-data:/data kmip-data:cuda doctor
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE ./
COPY src src
COPY kmip_data kmip_data
COPY pipelines pipelines
COPY models models
COPY cli cli
COPY manifests manifests
RUN python -m pip wheel --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG EXTRAS=demo
ARG TORCH_INDEX=
# Triton and KeOps compile with it at first use.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/
COPY --from=wheel /wheels /wheels
RUN python -m pip install --no-cache-dir -c /tmp/constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    "$(echo /wheels/*.whl)[$EXTRAS]"
RUN useradd --create-home kmip && install -d -o kmip /data
USER kmip
ENV KMIP_DATA_HOME=/data
VOLUME /data
ENTRYPOINT ["kmip-data"]
CMD ["--help"]
