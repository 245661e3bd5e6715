"""Everyday tools written by hand: schema, arguments, the questions that they answer, and an answer from a result."""
from .words import PLACE, THING, ways

NATURAL = [
    (
        "get_weather",
        "Get the current weather of a city",
        {"city": "string"},
        lambda d: {"city": d.city()},
        ways(
            """What is the weather in {city}? | How is the weather in {city}? |
            What's the weather like in {city}? | Is it raining in {city}? | Weather in {city}? |
            Tell me the weather in {city}. | How warm is it in {city}? |
            Do I need an umbrella in {city}? | Give me the weather of {city}. |
            What is it like outside in {city}? | Check the weather in {city}. |
            Is it sunny in {city} now? |
            How hot is it in {city}? | Is it windy in {city}? | Show me the weather in {city}. |
            What is the temperature in {city}? |
            What weather do they have in {city}? | Will I get wet in {city}? |
            Is it cold in {city}? | {city}: how is the weather? | How cold is it in {city}? |
            I need the weather for {city}. | What is the sky like in {city}?"""
        ),
        lambda d, a: (
            {"temperature": d.int(-15, 38), "sky": d.pick(("sunny", "cloudy", "rainy", "windy", "clear"))},
            "In {city} it is {sky} at {temperature} degrees.",
        ),
    ),
    (
        "get_time",
        "Get the local time of a city",
        {"city": "string"},
        lambda d: {"city": d.city()},
        ways(
            """What time is it in {city}? | Tell me the time in {city}. | Current time in {city}? |
            What's the time in {city}? | How late is it in {city}? | Time in {city}? |
            Which time do they have in {city}? | Tell me how late it is in {city}. |
            What does the clock say in {city}? | Give me the local time of {city}. |
            Which hour is it in {city}? | Is it late in {city}? | I need the time in {city}."""
        ),
        lambda d, a: ({"time": d.time()}, "In {city} it is {time}."),
    ),
    (
        "read_file",
        "Read a text file",
        {"path": "string"},
        lambda d: {"path": d.path()},
        ways(
            """What is in {path}? | Read {path}. | Show me the file {path}. |
            Open {path} and tell me what it says. | cat {path} | Print {path}. |
            What does {path} say? | Show {path}. | Tell me the content of {path}. | Look into {path}. |
            I want to see {path}."""
        ),
        lambda d, a: ({"content": f"{d.thing()} {d.number(99)}"}, "The file {path} contains: {content}"),
    ),
    (
        "list_files",
        "List the files of a folder",
        {"path": "string"},
        lambda d: {"path": f"{d.noun()}/{d.pseudo()}"},
        ways(
            """Which files are in {path}? | List the files in {path}. |
            Show the content of the folder {path}. | ls {path} | What is in the folder {path}? |
            Show me the files of {path}. | List {path}. | What files does {path} have? |
            Tell me what the folder {path} holds. | Give me a list of the files in {path}. |
            What can I find in {path}? | Which files does {path} hold? | Read the folder {path}. |
            What lies in {path}? |
            Files in {path}? | What does the folder {path} contain? | Please list {path}. |
            I want to see the files in {path}. | Look into the folder {path}. |
            Name the files of {path}. | Is there anything in {path}?"""
        ),
        lambda d, a: ({"files": f"{d.noun()}.txt"}, "The folder {path} has {files}."),
    ),
    (
        "write_file",
        "Write text to a file",
        {"path": "string", "text": "string"},
        lambda d: {"path": d.path(), "text": f"{d.pseudo()} {d.thing()}"},
        ways(
            """Write "{text}" to {path}. | Save the text "{text}" in {path}. |
            Put "{text}" into the file {path}. | Store "{text}" in {path}. |
            Make a file {path} with the text "{text}". | Create {path} with "{text}". |
            Put the line "{text}" in {path}. | I want "{text}" in the file {path}. |
            Write the file {path}: "{text}" | Let {path} contain "{text}"."""
        ),
        lambda d, a: ({"bytes": d.int(5, 60)}, "I wrote {bytes} bytes to {path}."),
    ),
    (
        "run_command",
        "Run a shell command",
        {"command": "string"},
        lambda d: {
            "command": d.pick(
                (
                    "make test",
                    "git status",
                    f"ls {d.noun()}",
                    f"grep {d.pseudo()} {d.path()}",
                    f"cat {d.path()}",
                    "df -h",
                )
            )
        },
        ways(
            """Run {command}. | Execute `{command}`. | Please run the command {command} |
            Run `{command}` in the shell. | Please run `{command}`. | Do `{command}` for me. |
            What does `{command}` print? | Start the command {command} |
            Type `{command}` in the shell. | Call `{command}`. | Try {command} |
            Launch {command} | Can you execute {command}? | Run {command} and tell me the result. |
            Fire up `{command}`. | Enter `{command}`. |
            Use the shell to run {command} | Run this: {command} | Shell: {command} |
            Could you run `{command}`? | Let `{command}` run. |
            I want to see what {command} prints. | In the shell, execute {command}"""
        ),
        lambda d, a: ({"exit": d.pick((0, 0, 1, 2))}, "The command ended with status {exit}."),
    ),
    (
        "search_web",
        "Search the web",
        {"query": "string"},
        lambda d: {"query": f"{d.thing()} {d.pseudo()}"},
        ways(
            """Search the web for {query}. | Look up {query}. | Find pages about {query}. |
            Google {query}. | Find {query} on the web. | Search for {query}. |
            What does the web say about {query}? | Web search: {query} |
            Look for {query} on the internet. | Search {query} online. |
            Is there a page about {query}?"""
        ),
        lambda d, a: (
            {"title": d.thing(), "url": f"https://{d.pseudo()}.org"},
            "The first result is {title} at {url}.",
        ),
    ),
    (
        "calculate",
        "Evaluate an arithmetic expression",
        {"expression": "string"},
        lambda d: {"expression": f"{d.number(9999)} {d.pick('+-*')} {d.number(9999)}"},
        ways(
            """What is {expression}? | Calculate {expression}. | Use the calculator: {expression} |
            How much is {expression}? | Compute {expression}. | Work out {expression}. |
            Evaluate {expression}. | {expression} = ? | What does {expression} give? |
            Tell me what {expression} is. | Solve {expression}."""
        ),
        lambda d, a: ({"value": eval(a["expression"])}, "{expression} = {value}"),
    ),
    (
        "send_email",
        "Send an email",
        {"to": "string", "subject": "string", "body": "string"},
        lambda d: {"to": d.email(), "subject": d.thing(), "body": f"{d.pseudo()} {d.pseudo()} {d.noun()}"},
        ways(
            """Send an email to {to} with the subject "{subject}" and the text "{body}". |
            Email {to} about "{subject}": "{body}" |
            Write a mail to {to}, subject "{subject}", saying "{body}". |
            Mail "{body}" to {to} with the subject "{subject}". |
            Send {to} the message "{body}", subject "{subject}". |
            To {to}, subject "{subject}": "{body}" |
            Please email {to}: subject "{subject}", text "{body}". |
            Tell {to} by mail "{body}", with "{subject}" as the subject. |
            Write to {to} about "{subject}": "{body}" | Message to {to}, titled "{subject}": "{body}" |
            I want to email {to} "{body}" with the subject "{subject}". |
            Could you mail {to} about "{subject}" and say "{body}"? |
            Subject "{subject}", to {to}: "{body}" | Drop {to} a mail, "{subject}": "{body}"  |
            Compose an email to {to}: "{subject}", "{body}" |
            {to} should get a mail "{subject}": "{body}" |
            Let {to} know "{body}", subject "{subject}". |
            Mail to {to}: subject "{subject}", body "{body}" |
            Please mail {to} "{body}" under the subject "{subject}". |
            New mail to {to}, subject "{subject}", text "{body}" """
        ),
        lambda d, a: ({"status": "sent"}, "The email to {to} was sent."),
    ),
    (
        "set_timer",
        "Start a timer",
        {"minutes": "integer"},
        lambda d: {"minutes": d.int(1, 120)},
        ways(
            """Set a timer for {minutes} minutes. | Wake me in {minutes} minutes. |
            Timer: {minutes} minutes. | Remind me in {minutes} minutes. |
            Start a timer of {minutes} minutes. | Ring in {minutes} minutes. |
            Let me know in {minutes} minutes. | {minutes} minutes from now, please ring. |
            Count down {minutes} minutes. | Timer for {minutes} minutes, please. |
            Alarm in {minutes} minutes."""
        ),
        lambda d, a: ({"id": d.int(1, 999)}, "The timer {id} runs for {minutes} minutes."),
    ),
    (
        "translate",
        "Translate a text",
        {"text": "string", "language": "string"},
        lambda d: {
            "text": d.thing(),
            "language": d.pick(("German", "French", "Spanish", "Italian", "Turkish")),
        },
        ways(
            """Translate "{text}" into {language}. | What is "{text}" in {language}? |
            How do you say "{text}" in {language}? | Give me "{text}" in {language}. |
            "{text}" in {language}, please. | Say "{text}" in {language}. |
            Put "{text}" into {language}. | Render "{text}" in {language}. |
            Translate into {language}: "{text}" | I need "{text}" in {language}. |
            What would "{text}" be in {language}?"""
        ),
        lambda d, a: ({"translation": f"{d.pseudo()} {d.pseudo()}"}, 'In {language} it is "{translation}".'),
    ),
    (
        "create_event",
        "Create a calendar event",
        {"title": "string", "date": "string", "time": "string"},
        lambda d: {"title": d.thing(), "date": d.iso_date(), "time": d.time()},
        ways(
            """Put "{title}" into my calendar on {date} at {time}. |
            Schedule "{title}" for {date}, {time}. | Create an event "{title}" on {date} at {time}. |
            Add "{title}" on {date} at {time} to my calendar. | Plan "{title}" for {date} at {time}. |
            Note "{title}" on {date}, {time}. | New event: "{title}", {date}, {time} |
            Enter "{title}" for {date} at {time}. | I have "{title}" on {date} at {time}, put it in. |
            Make an appointment "{title}" on {date} at {time}. | Calendar: {date}, {time}, "{title}" """
        ),
        lambda d, a: ({"id": d.int(1, 9999)}, "The event has the number {id}."),
    ),
    (
        "book_table",
        "Book a table in a restaurant",
        {"restaurant": "string", "people": "integer", "time": "string"},
        lambda d: {"restaurant": d.thing().title(), "people": d.int(1, 12), "time": d.time()},
        ways(
            """Book a table for {people} at {restaurant} at {time}. |
            Reserve a table in {restaurant} for {people} people at {time}. |
            I want a table for {people} in {restaurant} at {time}. |
            A table for {people} at {time} in {restaurant}, please. |
            We are {people} and want to eat at {restaurant} at {time}. |
            Get us a table at {restaurant}: {people} people, {time}. |
            Dinner for {people} at {restaurant}, {time}. |
            Please reserve {restaurant} for {people} at {time}. |
            Can you book {restaurant} at {time} for {people} people? |
            Table at {restaurant} for {people}, {time}. |
            At {time} we come to {restaurant} with {people} people."""
        ),
        lambda d, a: ({"code": d.code()}, "The table is booked, the code is {code}."),
    ),
    (
        "get_stock_price",
        "Get the price of a stock",
        {"symbol": "string"},
        lambda d: {"symbol": d.pseudo()[:4].upper()},
        ways(
            """What is the price of {symbol}? | How much is {symbol} stock? | Stock price of {symbol}? |
            How is {symbol} doing? | Price of {symbol}? | What does a share of {symbol} cost? |
            Tell me the price of {symbol}. | Look up the stock {symbol}. | Where is {symbol} trading? |
            What is {symbol} at? | Quote {symbol}. | Give me the stock price of {symbol}."""
        ),
        lambda d, a: ({"price": d.price()}, "{symbol} is at {price}."),
    ),
    (
        "turn_on",
        "Turn a device on",
        {"device": "string", "room": "string"},
        lambda d: {"device": d.word(THING), "room": d.word(PLACE)},
        ways(
            """Turn on the {device} in the {room}. | Switch the {device} in the {room} on. |
            {device} on in the {room}, please. | Put the {device} in the {room} on. |
            Switch on the {device} in the {room}. | Please turn the {device} in the {room} on. |
            Start the {device} in the {room}. | In the {room}, turn on the {device}. |
            I want the {device} on in the {room}. | Power on the {device} in the {room}. |
            {room}: {device} on"""
        ),
        lambda d, a: ({"status": "on"}, "The {device} in the {room} is on."),
    ),
    (
        "grep_tree",
        "Search files for a pattern",
        {"pattern": "string", "max_hits": "integer"},
        lambda d: {"pattern": d.pseudo(), "max_hits": d.int(1, 99)},
        ways(
            """Find {pattern} in the files, at most {max_hits} hits. |
            Search the code for {pattern}, limit {max_hits}. | grep {pattern}, up to {max_hits} hits |
            Look for {pattern} in the files, {max_hits} hits at most. |
            Where does {pattern} occur? Stop after {max_hits} hits. |
            Search {pattern}, no more than {max_hits} hits. |
            Show up to {max_hits} lines with {pattern}. | Find at most {max_hits} uses of {pattern}. |
            Which files contain {pattern}? Limit {max_hits}. | Grep for {pattern}, max {max_hits}. |
            List {max_hits} places where {pattern} stands."""
        ),
        lambda d, a: ({"file": d.path(), "line": d.int(1, 900)}, "I found it in {file}, line {line}."),
    ),
]
