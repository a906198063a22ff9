//go:build !mutants

package index_test

// prepare has something to do under the build tag mutants only.
func prepare() {}
