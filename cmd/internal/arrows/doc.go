// Package arrows holds no code: its test reads the module's import graph and
// fails, with the reason, when an arrow runs the wrong way.
package arrows
