// Package config reads Tidegate's one configuration file.
//
// [Load] is strict: an unknown key, a wrong type, a value outside its bounds, a
// missing ${VARIABLE} or an unreadable secret file is an error with its line,
// and all of them are reported at once ([Errors]). [Reference] and [Example] are
// made from the same struct tags that [Load] enforces, so that the documentation
// can not drift from the program.
//
// Packages below cmd do not know this package: they have Options, which cmd
// fills.
package config
