//go:build !chaos || !unix

package failpoint

// Hit does nothing in binaries that are built without the tag "chaos".
func Hit(Point) {}
