// Package browsertest contains only tests: they open the page of a server in Chromium, which they control over the
// DevTools protocol, and use it as a person would.
//
// They run with the flag -browser (make browser), because Chromium and axe-core are not part of the tree: if Chromium
// is missing, it is installed from Debian's package if that is allowed; axe-core is installed by npm into the user's
// cache folder. A test that lacks a program is skipped with one line that names it. The flag -shots writes the pictures
// of the documentation.
package browsertest
