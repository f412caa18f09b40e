// Package browsertest contains only tests of the server's web page. They control Chromium over the DevTools protocol.
//
// They run with the flag -browser (make browser), because Chromium and axe-core are not part of the tree. If Chromium
// is missing, it is installed from Debian's package if possible; npm installs axe-core into the user's cache folder.
// Without a program, a test is skipped with a message that names it. The flag -shots writes the pictures of the
// documentation.
package browsertest
