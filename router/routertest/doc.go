// Package routertest holds a snapshot for tests whose every part is set by
// hand: [World], and [Healthy], in which everything may be read everywhere.
// Tests of the router, of its wire protocols and of its clients hurt one part of
// a healthy world and look at the answer. It knows nothing of the index, so that
// a fault of the index can't hide one of the router.
package routertest
