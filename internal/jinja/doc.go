// Package jinja renders the subset of Jinja2 that chat templates of language models use.
//
// Its inputs are a template's source and a set of named values; its output is text. Rendering follows Jinja2 with the
// settings that Hugging Face uses: trim_blocks and lstrip_blocks on, no HTML escaping, tojson as Python's json.dumps
// with non-ASCII kept, and the loop controls break and continue. Maps keep the order of their keys.
//
// Templates come with checkpoints and are not trusted: parsing and rendering fail at fixed limits of depth, steps,
// memory and output. They never read files, the environment or the clock; the caller passes a clock.
//
// Text of the request can be marked ([Mark]). Marks have no effect on the template, but every filter, method and
// operator preserves them, so that the marked bytes of the rendered text are known.
//
// As in Hugging Face's sandbox, values are immutable: lists have no append, mappings no update. Templates collect
// values of loops in a namespace.
//
// Not supported, and refused by an error that names them: template inheritance, imports, includes, recursive loops and
// the do statement.
package jinja
