"""Chat templates written from the constructs that model families use, and conversations. None is a
family's own file; what each does is: roles, tools, calls, results, thoughts, dates, JSON."""

from __future__ import annotations

from typing import Any

TEMPLATES = {
    "chatml": """{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system
Be helpful.<|im_end|>
{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + (m.content or '') + '<|im_end|>' + '\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "alternating": """{% if messages[0]['role'] == 'system' %}
    {% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate: ' ~ message['role']) }}
    {% endif %}
    {% if loop.index0 == 0 and system != false %}
        {% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}
    {% else %}{% set content = message['content'] %}{% endif %}
    {% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}""",
    "dated tools": """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%Y") %}
    {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start|>system<|end|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{{- "Today: " + date_string + "\n\n" }}{{- system_message }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("only single tool-calls at once!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\n\n' }}{%- endif %}""",
    "lists of calls": """{%- set ns = namespace(index=0, system='') %}
{%- set user_messages = messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in messages if message.role != 'system' %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}{%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}{{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + message["content"] + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}{{- out[:-1] }}
            {{- ', "id": "' + tool_call.id[-9:] + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', ' }}
        {{- '"call_id": "' + (message.tool_call_id or 'none')[-9:] + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}""",
    "turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{%- set first = messages[0]['content'] + '\n\n' %}{% set rest = messages[1:] %}
{%- else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{%- for message in rest -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\n' + (first if loop.first else '') }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\n' }}{%- endif -%}""",
    "typed declarations": """{%- macro kind(v) -%}
    {%- if v is mapping -%}OBJECT{%- elif v is boolean -%}BOOL{%- elif v is number -%}NUMBER
    {%- elif v is string -%}STRING{%- elif v is sequence -%}ARRAY{%- else -%}NULL{%- endif -%}
{%- endmacro -%}
{%- macro argument(v, escape=True) -%}
    {%- if v is string -%}{{ '<q>' + v + '<q>' if escape else v }}
    {%- elif v is boolean -%}{{ 'true' if v else 'false' }}
    {%- elif v is mapping -%}{ {%- for k, x in v | dictsort -%}{{ ',' if not loop.first }}{{ k }}:{{ argument(x, escape) }}
        {%- endfor -%} }
    {%- elif v is sequence -%}[{%- for x in v -%}{{ argument(x, escape) }}{{ ',' if not loop.last }}{%- endfor -%}]
    {%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{%- macro properties(p, required, depth=0) -%}
    {%- set ns = namespace(found=false) -%}
    {%- for key, value in p | dictsort -%}
        {%- if ns.found %},{% endif -%}{%- set ns.found = true -%}
        {{ key }}:{description:{{ argument(value.description or '') }}
        {%- if value.enum %},enum:{{ argument(value['enum']) }}{%- endif -%}
        {%- if value.properties is defined -%},properties:{ {{- properties(value.properties, value.required or [], depth + 1) -}} }{%- endif -%}
        ,type:{{ (value.type or kind(value)) | upper }}{{ ',required' if key in required }}}
    {%- endfor -%}
{%- endmacro -%}
{{- bos_token -}}
{%- for tool in tools or [] -%}
<decl>{{ tool.function.name }}{ {{- properties(tool.function.parameters.properties, tool.function.parameters.required or []) -}} }</decl>
{%- endfor -%}
{%- set ns = namespace(prev='') -%}
{%- for m in messages -%}
    {%- if m.role != ns.prev %}<{{ m.role }}>{% endif -%}{%- set ns.prev = m.role -%}
    {%- for c in m.tool_calls or [] -%}call:{{ c.function.name }}{{ argument(c.function.arguments) }}{%- endfor -%}
    {{- m.content | default('', true) | trim -}}
{%- endfor -%}""",
    "last query": """{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\n<tools>" }}{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}
        {%- if message.tool_calls %}{%- for tool_call in message.tool_calls %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
            {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{{- '}\n</tool_call>' }}
        {%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}""",
    "xml of parameters": """{% macro render_extra(item, known) %}
    {%- if item is mapping %}{%- for key in item %}{% if key not in known %}
        {%- if item[key] is mapping or (item[key] is sequence and item[key] is not string) %}
            {{- '\n<' ~ key ~ '>' ~ (item[key] | tojson | safe) ~ '</' ~ key ~ '>' }}
        {%- else %}{{- '\n<' ~ key ~ '>' ~ (item[key] | string) ~ '</' ~ key ~ '>' }}{%- endif %}
    {%- endif %}{% endfor %}{%- endif %}
{% endmacro %}
{%- for tool in tools or [] %}{%- set f = tool.function %}
<function>
<name>{{ f.name }}</name>{{ '\n<description>' ~ (f.description | trim) ~ '</description>' if f.description }}
    {%- for name, field in (f.parameters.properties or {}) | items %}
        {{- '\n<parameter>\n<name>' ~ name ~ '</name>' }}{{- '\n<type>' ~ (field.type | string) ~ '</type>' }}
        {{- render_extra(field, ['type', 'description']) }}{{- '\n</parameter>' }}
    {%- endfor %}{{- render_extra(f.parameters, ['type', 'properties']) }}
</function>{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}{{- '\n' + message.content | trim + '\n' }}{%- endif %}
        {%- for call in message.tool_calls %}{{- '\n<tool_call>\n<function=' + call.function.name + '>\n' }}
            {%- for name, value in call.function.arguments|items %}
                {{- '<parameter=' + name + '>\n' }}
                {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                {{- value }}{{- '\n</parameter>\n' }}
            {%- endfor %}{{- '</function>\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user\n' }}{%- endif %}
        {{- '<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>\n' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}""",
    "flags": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}
{{- bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<|User|>' + message['content'] }}{%- endif %}
    {%- if message['role'] == 'assistant' and 'tool_calls' in message %}
        {%- set ns.is_tool = false -%}
        {%- for tool in message['tool_calls'] %}
            {%- if not ns.is_first %}{{ '<|Assistant|><|calls|><|call|>' + tool['type'] + '<|sep|>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments'] | tojson + '\n' + '```' + '<|end|>' }}{%- set ns.is_first = true -%}
            {%- else %}{{ '\n' + '<|call|>' + tool['type'] + '<|sep|>' + tool['function']['name'] }}{%- endif %}
        {%- endfor %}{{ '<|calls_end|>' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if ns.is_tool %}{{ '<|outputs_end|>' + message['content'] + eos_token }}{%- set ns.is_tool = false -%}
        {%- else %}{% set content = message['content'] %}
            {%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<|Assistant|>' + content + eos_token }}{%- endif %}
    {%- endif %}
    {%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}
        {%- if ns.is_output_first %}{{ '<|outputs|><|output|>' + message['content'] + '<|output_end|>' }}{%- set ns.is_output_first = false %}
        {%- else %}{{ '\n<|output|>' + message['content'] + '<|output_end|>' }}{%- endif %}
    {%- endif %}
{%- endfor -%}
{% if ns.is_tool %}{{ '<|outputs_end|>' }}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{ '<|Assistant|>' }}{% endif %}""",
    "visible texts": """[gMASK]<sop>
{%- if tools -%}<|system|>
# Tools
{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}
        {%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning_content = m.reasoning_content %}
{%- else %}{%- if '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}{{ '\n<think>' + reasoning_content.strip() + '</think>' }}
{%- else -%}{{ '\n<think></think>' }}{%- endif -%}
{%- if content.strip() -%}{{ '\n' + content.strip() }}{%- endif -%}
{% if m.tool_calls %}{% for tc in m.tool_calls %}{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}{% for k, v in _args.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}</tool_call>{% endfor %}{% endif %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ visible_text(m.content) }}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}""",
    "compact JSON": """{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':')) }}<|im_end|>{%- endif -%}
{%- set ns = namespace(calls=[], names={}) -%}
{%- for message in messages -%}
    {%- if loop.first and messages[0]['role'] != 'system' -%}<|im_system|>system<|im_middle|>You help.<|im_end|>{%- endif -%}
    {%- if message['role'] == 'system' -%}<|im_system|>{%- elif message['role'] == 'tool' -%}<|im_system|>{{ message.name or 'tool' }}<|im_middle|>## Return of {{ message.tool_call_id }}
{{ message['content'] }}<|im_end|>{%- else -%}<|im_{{ message['role'] }}|>{%- endif -%}
    {%- if message['role'] != 'tool' -%}{{ message['role'] }}<|im_middle|>{{ message['content'] if message['content'] is string else message['content'] | tojson(separators=(', ', ': '), sort_keys=true) }}
    {%- for tool_call in message.get('tool_calls', []) -%}
        {%- set ns.calls = ns.calls + [namespace(id=tool_call['id'], at=loop.index0)] -%}
        <|call|>{{ tool_call['id'] }}<|arg|>{% if tool_call['function']['arguments'] is string %}{{ tool_call['function']['arguments'] }}{% else %}{{ tool_call['function']['arguments'] | tojson(separators=(',', ':'), ensure_ascii=true) }}{% endif %}<|call_end|>
    {%- endfor -%}<|im_end|>{%- endif -%}
{%- endfor -%}
{%- for call in ns.calls -%}{{ call.id }}@{{ call.at }};{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}""",
    "stacked namespaces": """{%- macro functions(list) -%}{%- for tool in list -%}
<tool>{{ tool.function | tojson(ensure_ascii=False, sort_keys=True) }}</tool>
{% endfor -%}{%- endmacro -%}
{%- set state = namespace(turns=[], open=none, identity='M') -%}
{%- for m in messages -%}
    {%- if m.role == 'system' -%}{%- set state.identity = m.content -%}
    {%- else -%}
        {%- if state.open is none or state.open.role != m.role -%}
            {%- set state.open = namespace(role=m.role, parts=[]) -%}
            {%- set state.turns = state.turns + [state.open] -%}
        {%- endif -%}
        {%- set open = state.open -%}{%- set open.parts = open.parts + [m] -%}
    {%- endif -%}
{%- endfor -%}
{{- ']~!b[' ~ ']~b]system' }}
{{ state.identity }}
{{ functions(tools) if tools -}}
{%- for turn in state.turns -%}
]~b]{{ {'assistant': 'ai'}.get(turn.role, turn.role) }}
{% for m in turn.parts -%}
    {%- if m.tool_calls -%}<call>{% for c in m.tool_calls %}
<invoke name="{{ c.function.name }}">{% for k, v in c.function.arguments.items() %}<parameter name="{{ k }}">{{ v | tojson(ensure_ascii=False) if v is not string else v }}</parameter>{% endfor %}</invoke>{% endfor %}
</call>{%- endif -%}{{ m.content }}{{ '\n' if not loop.last }}
{%- endfor %}[e~[
{% endfor -%}
{%- if add_generation_prompt -%}]~b]ai
<think>
{% endif -%}""",
    "generation": """{%- set ns = namespace(mode='/think' if enable_thinking is not defined or enable_thinking else '/no_think', custom='') -%}
{%- if messages[0].role == "system" -%}
    {%- set system_message = messages[0].content -%}
    {%- if "/no_think" in system_message -%}{%- set ns.mode = "/no_think" -%}{%- endif -%}
    {%- set ns.custom = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\n## Metadata\n\nToday Date: " ~ strftime_now("%Y") ~ "\nReasoning Mode: " + ns.mode + "\n\n" -}}
{{- ns.custom + "\n\n" if ns.custom -}}
{%- if xml_tools or python_tools or tools -%}### Tools
    {%- set ns.text = '' -%}
    {%- for tool in (xml_tools or tools) -%}{%- set ns.text = ns.text ~ (tool.function | tojson) ~ "\n" -%}{%- endfor -%}
{{- "\n<tools>\n" + ns.text + "</tools>\n" -}}{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- set mine = content.lstrip("\n") -%}
        {%- if ns.mode == "/think" -%}{{ "<|im_start|>assistant\n" + mine + "<|im_end|>\n" }}
        {%- else -%}{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + mine + "<|im_end|>\n" }}{%- endif -%}
        {%- for c in message.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.keys() | join(',') }}){% endfor -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}{{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}{{ mine }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\n" }}{%- endif -%}""",
    "types as text": """{%- macro kind(spec, nullable=false) -%}
    {%- if spec.type == "array" -%}{%- if spec['items'] -%}{{ kind(spec['items']) + '[]' }}{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}{{- spec.type | join(" | ") }}{%- else -%}{{- spec.type[0] }}{%- endif -%}
    {%- elif spec.oneOf -%}{%- for variant in spec.oneOf -%}{{- kind(variant) -}}{%- if not loop.last -%}{{- " | " }}{%- endif -%}{%- endfor -%}
    {%- elif spec.type == "string" -%}{%- if spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' -}}{%- else -%}string{%- endif -%}
    {%- elif spec.type in ("number", "integer") -%}number
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}{{- "{\n" }}
            {%- for name, inner in spec.properties.items() -%}{{- name -}}{%- if name not in (spec.required or []) -%}?{%- endif -%}{{- ": " }}{{ kind(inner) }}{{ ", " if not loop.last }}{%- endfor -%}{{- "}" }}
        {%- else -%}object{%- endif -%}
    {%- else -%}any{%- endif -%}
    {%- if spec.default is defined -%}, // default: {{ spec.default | tojson }}{%- endif -%}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- "Current date: " + strftime_now("%Y-%%-%d")[:5] + "\n\n" }}
{{- "Reasoning: " + (reasoning_effort or "medium") + "\n" }}
{%- if tools %}{{- "namespace functions {\n" }}
{%- for tool in tools %}{%- set tool = tool.function %}{{- "// " + tool.description + "\n" }}{{- "type " + tool.name + " = " }}
    {%- if tool.parameters and tool.parameters.properties %}{{- "(_: " }}{{ kind(tool.parameters) }}{{- ") => any;\n" }}
    {%- else %}{{- "() => any;\n" }}{%- endif -%}
{%- endfor %}{{- "}" }}{%- endif %}{{- "<|end|>" }}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "tool_calls" in message %}
            {%- if message.content and message.thinking %}{{- raise_exception("Cannot pass both content and thinking in a message with a call") }}
            {%- elif message.content %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.content + "<|end|>" }}
            {%- elif message.thinking %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {%- set tool_call = message.tool_calls[0].function %}
            {{- "<|start|>assistant to=" }}{{- "functions." + tool_call.name + "<|channel|>commentary " }}
            {{- (tool_call.content_type if tool_call.content_type is defined else "json") + "<|message|>" }}{{- tool_call.arguments|tojson }}{{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if message.thinking is defined %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- set last_tool_call.name = none %}{%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name }}{{- " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- else -%}{{- "<|start|>" ~ message.role ~ "<|message|>" + message.content + "<|end|>" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    "deep indents": """{%- macro describe(schema, depth) -%}
{%- set pad = '  ' * depth -%}
{%- for name, field in (schema.properties or {}) | dictsort(reverse=true) %}
{{ pad }}- {{ name }}{{ '*' if name in (schema.required or []) else '' }} ({{ field.type | default('any') }}){{ ': ' ~ field.description if field.description else '' }}
{%- if field.enum %} one of {{ field.enum | map('tojson') | join(' | ') }}{% endif %}
{%- if field.type == 'object' %}{{ describe(field, depth + 1) }}{% endif %}
{%- if field.minimum is defined or field.maximum is defined %} [{{ field.minimum | default('-inf') }}..{{ field.maximum | default('inf') }}]{% endif %}
{%- endfor -%}
{%- endmacro -%}
{{ bos_token }}{%- if tools %}{{ 'functions' | upper | center(21, ) }}
{%- for group in tools | map(attribute='function') | batch(2) %}
{%- for f in group %}

## {{ loop.index }}. {{ f.name | title | replace('_', ' ') }}
{{ f.description | wordcount }} words{{ describe(f.parameters, 1) }}
{{ f | tojson(indent=2, ensure_ascii=False) | indent(4, first=true) }}
{%- endfor %}{%- endfor %}{%- endif %}
{% for m in messages recursive %}{% if loop.cycle('odd', 'even') == 'odd' %}>{% endif %}{{ '%-10s|' | format(m.role) }}{{ m.content | default('-', true) | truncate(40, true, '...') | capitalize }}
{% else %}nothing
{% endfor %}{{ messages | groupby('role') | map('first') | join(',') }} {{ messages | map(attribute='role') | unique | sort(reverse=true) | join('/') }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | list | count }}
{%- set total = namespace(n=0) %}{% for m in messages %}{% set total.n = total.n + (m.content or '') | length %}{% endfor %}
{{ total.n }} {{ '%.2f' % (total.n / (messages | length)) }} {{ (total.n / 7) | round(1) }} {{ [1, total.n] | max }} {{ range(0, 9, 3) | list }} {{ total.n // 2 ** 2 % 5 }}""",
    "joins and joiners": """{%- set comma = joiner(', ') -%}{%- set mark = cycler('a', 'b') -%}
{%- for m in messages -%}{{ comma() }}{{ mark.next() }}{{ m.role[0] | upper }}{{ m.role[1:] }}={{ (m.content or '') | e }}{%- endfor %}
{% set body %}{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{% if loop.index > 4 %}{% break %}{% endif %}{{ loop.revindex }}/{{ loop.length }} {{ loop.changed(m.role) }} {{ loop.depth }}
{% endfor %}{% endset %}{{ body | trim }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller('x') }}</{{ tag }}>{% endmacro -%}
{% call(v) wrap('q') %}{{ v }}{{ messages | length }}{% endcall %}{% filter upper %}{{ messages[-1].role }}é{% endfilter %}
{%- with a = messages[0], b = 2 %}{{ a.role ~ b ~ none ~ true ~ 1.50 ~ [1, 'x'] ~ {'k': (1,)} }}{% endwith -%}
{% if messages is sequence and messages[0] is mapping and 1 is odd and 'a' is lower and x is undefined and bos_token is defined %}ok{% endif %}
{{ messages[0].content.splitlines() | first }}{{ messages[-1]['content'].partition(' ')[0] if messages[-1].content }}{{ 'é' in messages[0].content }}{{ 'a,b,,c'.split(',') }}{{ 'x'.join(['1', '2']) }}{{ '{0}-{b:>4}'.format(1, b='z') }}{{ 'abc'[::-1] }}{{ 'Ab'.swapcase() }}{{ 'a b'.title() }}{{ ' x '.strip() | length }}{{ messages[0].role.isalpha() }}{{ 'aXbX'.rsplit('X', 1) }}{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'ab' * 3 }}
{%- raw %}{{ not rendered }}{% endraw %}{# a comment #}
{{ dict(a=1, **{'b': [none, false]}) | tojson }}{{ [3, 1, 2] | sort | reverse | list }}{{ {'b': 1, 'a': 2}.items() | sort }}{{ [[1, 2], [3]] | sum(start=[]) | length if false else 'n' }}{{ ['a', 'b'] | last }}{{ '<b>' | striptags if false }}""",
}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city, says Müller's <service>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A “city”"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "where": {
                        "type": "object",
                        "properties": {"lat": {"type": "number", "minimum": -90}, "lon": {"type": ["number", "null"]}},
                        "required": ["lat"],
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "stop",
            "description": "Stop.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]  # fmt: skip
_CALL = {
    "id": "call_abcdef123",
    "type": "function",
    "function": {
        "name": "get_weather",
        "arguments": {
            "city": "Zürich <&> 東京", "unit": "C", "days": [1, 2], "where": {"lat": 47.5},
            "now": True, "none": None,
        },
    },
}  # fmt: skip
_STOP = {"id": "call_2", "type": "function", "function": {"name": "stop", "arguments": {}}}
_USER = {"role": "user", "content": " What is the weather in Zürich? 🌦\n"}
_SYSTEM = {"role": "system", "content": "You are é <b>kind</b>. /no_think\nSecond line."}
_CALLED = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "call_abcdef123", "content": '{"temp": 21.5, "é": null}'}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "a question": {"messages": [_USER]},
    "a system": {"messages": [_SYSTEM, _USER]},
    "turns": {
        "messages": [
            _SYSTEM, _USER, {"role": "assistant", "content": "\nFine, 20° \n"},
            {"role": "user", "content": "<tool_response>x</tool_response>"},
        ]
    },
    "thoughts": {
        "messages": [
            _USER, {"role": "assistant", "content": "<think>\nHm, é\n</think>\n\nFine."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "\nIt is.\n"},
        ],
        "add_generation_prompt": False,
    },
    "tools": {"messages": [_SYSTEM, _USER], "tools": TOOLS},
    "a call": {"messages": [_USER, _CALLED, _RESULT], "tools": TOOLS},
    "two calls": {
        "messages": [
            _SYSTEM, _USER, {**_CALLED, "content": "Let me look.", "tool_calls": [_CALL, _STOP]},
            _RESULT, {**_RESULT, "tool_call_id": "call_2", "content": "stopped"},
            {"role": "assistant", "content": "It is 21.5 °C."}, {"role": "user", "content": "Thanks"},
        ],
        "tools": TOOLS,
    },
    "nulls": {
        "messages": [
            {**_USER, "name": None},
            {"role": "assistant", "content": "Hello", "tool_calls": None, "reasoning_content": None},
            _USER,
        ]
    },
    "variables": {"messages": [_USER], "enable_thinking": False, "reasoning_effort": "high"},
    "the last goes on": {
        "messages": [_USER, {"role": "assistant", "content": "The weather is "}],
        "add_generation_prompt": False, "continue_final_message": True,
    },
}  # fmt: skip
