# syntax=docker/dockerfile:1
# One image for every role: `docker run dibs api`, `consumer`, `syncer`, `migrate`, `serve`, …
# Base images are pinned by tag here; pin them by digest in a registry of your own.

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
# Where modules come from, for builds behind a proxy of their own: --build-arg GOPROXY=https://proxy.example.com
ARG GOPROXY
ARG GOSUMDB
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# The binary is static and carries the time zones; what it lacks on an empty file system is roots of trust, for
# rediss:// and TLS to MySQL, and a place for temporary files, for `serve` on embedded servers.
ARG VERSION=dev
ARG COMMIT=
ARG DATE=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -o /out/dibs -ldflags="-s -w -X dibs/internal/build.version=$VERSION \
      -X dibs/internal/build.commit=$COMMIT -X dibs/internal/build.date=$DATE" . \
    && mkdir -m 1777 /out/tmp

FROM scratch
ARG VERSION=dev
ARG COMMIT=
ARG DATE=
LABEL org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$COMMIT org.opencontainers.image.created=$DATE \
      org.opencontainers.image.title="dibs" \
      org.opencontainers.image.description="Hands out a limited number of things to a crowd that arrives at once"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/tmp /tmp
COPY --from=build /out/dibs /dibs
USER 65532:65532
# Outside the container nobody reaches its loopback address. Dibs refuses to listen here unless tokens are set, and without a
# certificate (DIBS_TLS_CERT, DIBS_TLS_KEY) unless DIBS_INSECURE=1 says that a proxy in front has one.
ENV DIBS_HTTP_ADDR=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/dibs"]
CMD ["help"]
