// Package browsertest holds no code of its own: its tests open the page of a server in Chromium, which they drive over
// the DevTools protocol, and use it as a person would.
//
// They run with the flag -browser (make browser), because Chromium and axe-core are not part of the tree: Chromium is
// installed from Debian's package where it is missing and this is allowed, axe-core by npm into the user's cache
// folder. What cannot be had is named in one line and skipped. The flag -shots writes the pictures of the
// documentation.
package browsertest
