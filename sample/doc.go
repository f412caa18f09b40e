// Package sample turns one row of logits into one token.
//
// In: a row of logits [vocabulary], the request's parameters ([Params]) and optionally the tokens a grammar allows
// ([Mask]). Out: a [Choice], with log probabilities if requested. [StopMatcher] then decides where the text
// ends. The package does not depend on a model, a batch or a clock.
//
// # Order of operations
//
//  1. logit_bias is added
//  2. repetition_penalty divides positive logits and multiplies negative ones,
//     for every token of the prompt and of the output
//  3. frequency_penalty times the count, and presence_penalty once, are
//     subtracted for every token of the output
//  4. the mask removes tokens that the grammar forbids
//  5. temperature divides; below [GreedyBelow] the largest logit wins at once
//  6. top_k keeps the k largest
//  7. top_p keeps the smallest prefix of those whose share reaches p
//  8. min_p drops tokens that are less likely than p times the likeliest
//
// Steps 1 to 3 are in vLLM's order, steps 6 to 8 in SGLang's; as in vLLM, top_p is a share of the tokens that top_k
// keeps. Penalties count the same tokens as in vLLM: the repetition penalty those of prompt and output, the other two
// those of the output. Ties are broken towards the lower id, in every step. Steps 5 to 8 weigh tokens by whole numbers
// (weight.go), whose sums have no order: a device that adds them in parallel samples the same tokens ([Draw]). Tokens
// whose logit is more than 30 temperatures below the largest are never sampled: each has less than 1e-13 of its
// probability.
//
// # Randomness
//
// The random number of output token k of choice i is a pure function of (seed, i, k): see [Uniform]. A sequence
// therefore has the same numbers alone, in a batch, after preemption, or when several rows are verified in one step.
// [Sampler.Sample] does not change the state of the sequence; [Sampler.Accept] advances it. A verifier that calls
// Sample and Accept row by row, and stops at the first token that differs from the draft, emits exactly the tokens that
// undrafted decoding would have emitted, at any temperature. [Sampler.Probabilities] gives the distribution itself to
// verifiers that accept by ratio instead.
//
// # Log probabilities
//
// They describe the model, not the request: the log-softmax of the logits as they came in, before every step above. A
// token that was sampled because of a mask or a bias can have a very low one.
package sample
