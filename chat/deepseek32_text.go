package chat

// The instruction texts of DeepSeek-V3.2. The model was trained on exactly these bytes, and a test compares their
// length and SHA-256 with the published values.

// v32ToolsPrefix precedes the tool schemas, one JSON object per line; v32ToolsSuffix follows them.
const v32ToolsPrefix = `## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
`

const v32ToolsSuffix = "\n</functions>\n"

// dsmlFormatPrefix precedes the JSON schema of the reply, also in V4.
const dsmlFormatPrefix = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"

// v32DeveloperPrefix precedes the text of a developer message.
const v32DeveloperPrefix = "\n\n# The user's message is: "
