.PHONY: build test ci demo
build: ; go build -o bin/tidegate ./cmd/tidegate
test: ; go test ./...
ci: ; .ci/run
demo: ; go run ./cmd/tidegate demo
