// Package contract tests what the suite's source says against what it promises: that no field of a request is
// accepted and ignored, and that the figures of the documentation are those of the code.
package contract
