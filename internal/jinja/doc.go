// Package jinja renders the subset of Jinja2 that chat templates of language models use.
//
// Its inputs are a template's source and a set of named values; its output is text. Rendering follows Jinja2 with the
// settings that Hugging Face uses: trim_blocks and lstrip_blocks on, no HTML escaping, tojson as Python's json.dumps
// with non-ASCII kept, and the loop controls break and continue. Maps keep the order of their keys.
//
// Templates come with checkpoints and are not trusted: parsing and rendering stop with an error at fixed limits of
// depth, steps, memory and output, and never read files, the environment or the clock (the caller passes one in).
//
// Text of the request can be marked ([Mark]). Templates cannot distinguish it; the rendered text records which of its
// bytes were marked, through every filter, method and operator.
//
// Values are immutable, as in the sandbox of Hugging Face: lists have no append, mappings no update. Loops collect
// values in a namespace.
//
// Not supported, and rejected by name: template inheritance, imports, includes, recursive loops and the do statement.
package jinja
