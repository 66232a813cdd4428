# The image of a release, made of programs that are already built: see .goreleaser.yaml.
FROM gcr.io/distroless/static-debian12:nonroot@sha256:d093aa3e30dbadd3efe1310db061a14da60299baff8450a17fe0ccc514a16639
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/bridge /bridge
EXPOSE 8080
ENTRYPOINT ["/bridge"]
CMD ["run", "--config", "/etc/delaybridge/bridge.yaml"]
