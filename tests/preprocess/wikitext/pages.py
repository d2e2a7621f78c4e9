"""Pages of dumps as text."""


def page(title, text, ns="<ns>0</ns>"):
    return f"<page><title>{title}</title>{ns}<revision><text>{text}</text></revision></page>\n"
