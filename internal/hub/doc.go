// Package hub maps the name of a model, such as deepseek-ai/DeepSeek-V3.2, to a folder on this machine. [Cache] finds
// models in the layout that Hugging Face's own tools use, and [Puller] downloads them there from a hub server:
//
//	models--deepseek-ai--DeepSeek-V3.2/
//	  refs/main                       the commit that the branch was at
//	  snapshots/COMMIT/config.json -> ../../blobs/HASH
//	  blobs/HASH                      contents: SHA-256 of large files, git's blob hash (SHA-1) of others
//	  blobs/HASH.incomplete           a download that has not ended
//	.locks/models--deepseek-ai--DeepSeek-V3.2/HASH.lock
//
// A blob gets its name only after its hash was verified. A ref is written only after all files of its commit, so that
// only complete models are found. The package does not read the environment and opens no model.
package hub
