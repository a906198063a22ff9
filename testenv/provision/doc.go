// Package provision brings Debian and Ubuntu packages into a cache folder and
// runs programs from there: without root, and without touching the machine.
//
// Main path: a [Set] names packages, [Ensure] turns it into a [Root] (an
// unpacked tree, complete with its own C library), [Root.Command] gives the
// command line that runs a program of that tree through the tree's own loader.
//
// How: a private apt tree (own sources, lists, cache, and an empty dpkg status
// file, so that the whole closure of dependencies comes down) is fed by the
// mirrors in the machine's own apt sources; every package is unpacked with
// "dpkg -x". Signatures are checked by apt with the machine's own keys.
//
// After a crash: a tree is built beside its place and renamed into it when it
// is complete, under a lock file; what a killed process left half done is
// removed by the next one. Two processes that ask for one set at once get the
// same tree, built once.
package provision
