.PHONY: build test ci demo
build: ; go build -o bin/tidegate ./cmd/tidegate
test: ; go test -timeout 20m ./...
ci: ; .ci/run
demo: ; go run ./cmd/tidegate demo
